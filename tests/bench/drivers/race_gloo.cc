// Gloo over its TCP transport, with one of its algorithms: ring, bcube or hd (halving-doubling).
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "tests/bench/drivers/race.h"

namespace tutti::race {
namespace {

using Sum = void (*)(void*, const void*, const void*, size_t);
constexpr Sum kSum = &gloo::sum<float>;

class Gloo : public Contestant {
 public:
  explicit Gloo(const Arguments& arguments) : algorithm_(arguments.get("algorithm", "ring")) {
    gloo::transport::tcp::attr attr;
    attr.hostname = arguments.get("address", "127.0.0.1");
    auto device = gloo::transport::tcp::CreateDevice(attr);
    auto context = std::make_shared<gloo::rendezvous::Context>(std::stoi(arguments.get("rank")),
                                                               std::stoi(arguments.get("ranks")));
    gloo::rendezvous::FileStore store(arguments.get("store"));
    context->connectFullMesh(store, device);
    context_ = std::move(context);
  }

  int rank() const override { return context_->rank; }
  int world_size() const override { return context_->size; }

  void run(Collective collective, float* in, float* out, size_t count) override {
    switch (collective) {
      case Collective::all_reduce:
        return algorithm_ == "hd" ? halve_and_double(out, count) : all_reduce(out, count);
      case Collective::reduce:
        return reduce(out, count);
      case Collective::broadcast:
        return broadcast(out, count);
      case Collective::all_gather:
        return all_gather(in, out, count);
      case Collective::reduce_scatter:
        return reduce_scatter(in, out, count);
      case Collective::stream:
        fail("Gloo is not measured so");
    }
  }

 private:
  void all_reduce(float* data, size_t count) {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(algorithm_ == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                               : gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(data, count);
    options.setReduceFunction(kSum);
    gloo::allreduce(options);
  }

  // The older interface: made once for its buffer, then run.
  void halve_and_double(float* data, size_t count) {
    auto& algorithm = all_reduces_[{data, count}];
    if (algorithm == nullptr)
      algorithm = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(
          context_, std::vector<float*>{data}, static_cast<int>(count));
    algorithm->run();
  }

  void reduce(float* data, size_t count) {
    gloo::ReduceOptions options(context_);
    options.setInput(data, count);
    options.setOutput(data, count);
    options.setRoot(kRoot);
    options.setReduceFunction(kSum);
    gloo::reduce(options);
  }

  void broadcast(float* data, size_t count) {
    gloo::BroadcastOptions options(context_);
    options.setOutput(data, count);
    options.setRoot(kRoot);
    gloo::broadcast(options);
  }

  void all_gather(float* in, float* out, size_t count) {
    gloo::AllgatherOptions options(context_);
    options.setInput(in, count);
    options.setOutput(out, count * static_cast<size_t>(world_size()));
    gloo::allgather(options);
  }

  // Only the older interface has it; it leaves the result where the input begins.
  void reduce_scatter(float* in, float* out, size_t count) {
    auto& algorithm = reduce_scatters_[{in, count}];
    const auto ranks = static_cast<size_t>(world_size());
    if (algorithm == nullptr)
      algorithm = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
          context_, std::vector<float*>{in}, static_cast<int>(count * ranks),
          std::vector<int>(ranks, static_cast<int>(count)));
    algorithm->run();
    std::memcpy(out, in, count * sizeof(float));
  }

  using Key = std::pair<float*, size_t>;
  std::string algorithm_;
  std::shared_ptr<gloo::Context> context_;
  std::map<Key, std::unique_ptr<gloo::Algorithm>> all_reduces_;
  std::map<Key, std::unique_ptr<gloo::Algorithm>> reduce_scatters_;
};

}  // namespace
}  // namespace tutti::race

int main(int argc, char** argv) {
  const tutti::race::Arguments arguments(argc, argv);
  tutti::race::Gloo gloo(arguments);
  return run_race(gloo, arguments.options());
}

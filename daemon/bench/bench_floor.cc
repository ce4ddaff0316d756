#include "daemon/bench/bench_floor.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <vector>

#include "daemon/base/loop.h"

namespace tutti {
namespace {

constexpr size_t kRounds = 9;

// Input and output of all ranks of a GPU.
class Copies {
 public:
  Copies(BenchGpu& gpu, uint64_t bytes, uint64_t count)
      : gpu_(gpu),
        bytes_(bytes),
        count_(count),
        in_({.gpu = &gpu}, bytes * count),
        out_({.gpu = &gpu}, bytes * count) {}

  double run_us() {
    const TimePoint start = Clock::now();
    for (uint64_t i = 0; i < count_; ++i) gpu_.copy(at(out_, i), at(in_, i), bytes_);
    gpu_.synchronize();
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }

 private:
  std::byte* at(const Tensor& tensor, uint64_t i) const {
    return static_cast<std::byte*>(tensor.data()) + i * bytes_;
  }

  BenchGpu& gpu_;
  const uint64_t bytes_;
  const uint64_t count_;
  Tensor in_, out_;
};

}  // namespace

BenchFloor::BenchFloor(tutti_group* group, BenchGpu& gpu) : gpu_(gpu) {
  std::vector<BenchGpu::Id> ids(static_cast<size_t>(tutti_world_size(group)));
  check(tutti_all_gather(group, gpu.id().data(), ids.data(), gpu.id().size(), TUTTI_U8, nullptr,
                         nullptr));
  gpus_ = static_cast<int>(std::set(ids.begin(), ids.end()).size());
  const auto first = std::ranges::find(ids, gpu.id()) - ids.begin();
  if (first == tutti_rank(group))
    copies_ = static_cast<uint64_t>(std::ranges::count(ids, gpu.id()));
}

double BenchFloor::copy_us(uint64_t bytes) const {
  if (copies_ == 0 || bytes == 0) return 0;
  Copies copies(gpu_, bytes, copies_);
  copies.run_us();
  std::vector<double> micros(kRounds);
  for (double& sample : micros) sample = copies.run_us();
  return percentile(micros, 50);
}

}  // namespace tutti

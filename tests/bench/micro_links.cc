// Links one way and there and back, in one process over the loopback: bytes per second of frames,
// and the time of a round trip of 64 bytes. To be held against the bare stream of micro_grpc.cc.
#include <benchmark/benchmark.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tests/transport/fixture.h"

namespace tutti {
namespace {

constexpr size_t kBurstBytes = 64 << 20;
constexpr size_t kPingBytes = 64;

// Counts what arrives; may send everything back.
class Counter : public LinkHandler {
 public:
  void on_frame(Frame frame) override {
    const size_t bytes = frame.payload.bytes();
    if (answers_) answer(bytes);
    bytes_.fetch_add(bytes);
    bytes_.notify_all();
  }
  void on_closed(Status) override {}

  void answer_through(std::shared_ptr<Link> link) {
    link_ = std::move(link);
    answers_ = true;
  }
  void wait_for(size_t bytes) const {
    for (size_t seen = bytes_.load(); seen < bytes; seen = bytes_.load()) bytes_.wait(seen);
  }

 private:
  void answer(size_t bytes) {
    require(link_->send({{}, {pong_.data(), bytes}, {}}).ok(), "a link with room for an answer");
  }

  std::atomic<size_t> bytes_ = 0;
  std::atomic<bool> answers_ = false;
  std::shared_ptr<Link> link_;
  std::vector<std::byte> pong_ = std::vector<std::byte>(kPingBytes);
};

class Line {
 public:
  explicit Line(const std::string& kind)
      : network_(make_local_network()),
        here_(make_transport(kind, {}, network_)),
        there_(make_transport(kind, {}, network_)) {
    const auto address =
        there_->listen("127.0.0.1:0",
                       [this](const IncomingLink& guest,
                              std::shared_ptr<Link> link) -> Result<std::shared_ptr<LinkHandler>> {
                         require(guest.verify_secret("s"), "the secret");
                         back_ = std::move(link);
                         return std::shared_ptr<LinkHandler>(far_);
                       });
    require(address.ok(), address.status().message());
    link_ = here_->connect(*address, {.job = "micro", .host = "a", .secret = "s"}, near_);
    ping_pong_ready();
  }
  ~Line() {
    link_->close(Status());
    link_.reset();
    far_->answer_through(nullptr);
    back_.reset();
  }

  // Sends, and where the link is full waits until it has taken what it has.
  void send(std::span<const std::byte> bytes) {
    for (;;) {
      const size_t before = released_.load();
      const Status status = link_->send({{}, bytes, [this] {
                                           released_.fetch_add(1);
                                           released_.notify_all();
                                         }});
      if (status.ok()) break;
      require(status.code() == Code::resource_exhausted, status.message());
      released_.wait(before);
    }
    sent_ += bytes.size();
  }
  void wait_until_arrived() const { far_->wait_for(sent_); }
  void ping(std::span<const std::byte> bytes) {
    far_->answer_through(back_);
    send(bytes);
    answered_ += bytes.size();
    near_->wait_for(answered_);
  }

 private:
  void ping_pong_ready() {
    const std::vector<std::byte> first(kPingBytes);
    send(first);
    wait_until_arrived();
  }

  std::shared_ptr<LocalNetwork> network_;
  std::shared_ptr<Counter> near_ = std::make_shared<Counter>();
  std::shared_ptr<Counter> far_ = std::make_shared<Counter>();
  std::shared_ptr<Link> back_;
  std::unique_ptr<Transport> here_;
  std::unique_ptr<Transport> there_;
  std::shared_ptr<Link> link_;
  std::atomic<size_t> released_ = 0;
  size_t sent_ = 0;
  size_t answered_ = 0;
};

void one_way(benchmark::State& state, const std::string& kind) {
  const std::vector<std::byte> frame(static_cast<size_t>(state.range(0)) << 10);
  Line line(kind);
  for (auto _ : state) {
    for (size_t sent = 0; sent < kBurstBytes; sent += frame.size()) line.send(frame);
    line.wait_until_arrived();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kBurstBytes));
}

void round_trip(benchmark::State& state, const std::string& kind) {
  const std::vector<std::byte> frame(kPingBytes);
  Line line(kind);
  for (auto _ : state) line.ping(frame);
}

const bool kAdded = [] {
  keep_malloc_memory();
  for (const char* kind : {"local", "grpc", "grpc+tls", "tcp", "tcp+tls"}) {
    benchmark::RegisterBenchmark(("link_one_way/" + std::string(kind)).c_str(), one_way, kind)
        ->ArgName("KiB")
        ->Arg(64)
        ->Arg(1024)
        ->Arg(4096)
        ->UseRealTime()
        ->MeasureProcessCPUTime()
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("link_round_trip/" + std::string(kind)).c_str(), round_trip, kind)
        ->UseRealTime()
        ->MeasureProcessCPUTime()
        ->Unit(benchmark::kMicrosecond);
  }
  return true;
}();

}  // namespace
}  // namespace tutti

// Several engines on one thread: tensors that become ready slice by slice in a window of memory;
// and no host completes before all have started.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "daemon/engine/engine.h"

namespace tutti {
namespace {

constexpr uint64_t kSliceBytes = 64 * 1024;

// A host's tensor of f32 in a window of as many slices as may be in flight: slice s lies in place
// s % slots. Element i of host h contributes h + i % 1000.
class WindowTensor final : public HostTensor {
 public:
  static constexpr uint64_t kSlots = 4;

  WindowTensor(const Plan& plan, int host, uint64_t count)
      : geometry_(plan, Dtype::f32, count, kSliceBytes), host_(host), result_(count, -1) {
    const Range first = whole(0);
    slot_elements_ = first.count;
    window_.resize(slot_elements_ * kSlots);
  }

  Result<bool> ready(uint64_t slice) override {
    EXPECT_EQ(slice, folded) << "asked in ascending order";
    if (slice >= may_fold) return false;
    EXPECT_LT(slice, released_ + kSlots) << "its place in the window is still in use";
    const Range range = whole(slice);
    for (uint64_t i = 0; i < range.count; ++i)
      at(range.first)[i] = static_cast<float>(host_) + static_cast<float>((range.first + i) % 1000);
    ++folded;
    return true;
  }
  Contributions contributions(int, const Range& range) override {
    place_ = reinterpret_cast<std::byte*>(at(range.first));
    return {{&place_, 1}, nullptr, Dtype::f32, place_};
  }
  std::span<std::byte* const> targets(int, const Range& range) override {
    place_ = reinterpret_cast<std::byte*>(at(range.first));
    return {&place_, 1};
  }
  Status finished(uint64_t slice) override {
    EXPECT_EQ(slice, finished_++);
    const Range range = whole(slice);
    std::copy_n(at(range.first), range.count, result_.begin() + static_cast<long>(range.first));
    return {};
  }
  void released(uint64_t slice) override { EXPECT_EQ(slice, released_++); }

  uint64_t slices() const { return geometry_.slices(); }
  uint64_t finished_slices() const { return finished_; }
  uint64_t released_slices() const { return released_; }
  const std::vector<float>& result() const { return result_; }

  uint64_t may_fold = 0;  // Slices whose contributions have come.
  uint64_t folded = 0;

 private:
  Range whole(uint64_t slice) const {
    Range range = geometry_.slice(0, slice);
    for (int chunk = 1; chunk < geometry_.chunks(); ++chunk)
      range.count += geometry_.slice(chunk, slice).count;
    return range;
  }
  float* at(uint64_t element) { return &window_[element % window_.size()]; }

  const Geometry geometry_;
  const int host_;
  uint64_t slot_elements_ = 0;
  std::vector<float> window_;
  std::vector<float> result_;
  std::byte* place_ = nullptr;
  uint64_t finished_ = 0;
  uint64_t released_ = 0;
};

// The engines of several hosts. Frames and releases are queued until run().
class Net {
 public:
  explicit Net(int hosts) : device_(make_host_device()) {
    for (int host = 0; host < hosts; ++host) {
      senders_.push_back(std::make_unique<QueueSender>(*this, host));
      engines_.push_back(
          make_engine(*device_, {}, [this](auto task) { tasks_.push_back(std::move(task)); }));
    }
  }
  Engine& engine(int host) { return *engines_[static_cast<size_t>(host)]; }

  void start(int host, Operation operation) {
    operation.sender = senders_[static_cast<size_t>(host)].get();
    engine(host).start(std::move(operation));
  }

  // Delivers frames and runs tasks until there are none.
  void run() {
    while (!tasks_.empty()) {
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  struct QueueSender final : FrameSender {
    QueueSender(Net& its_net, int its_host) : net(its_net), host(its_host) {}
    Status send(const OpId&, int to, Outgoing frame) override {
      EXPECT_EQ(frame.header.from, host);
      const auto bytes =
          std::make_shared<std::vector<std::byte>>(frame.bytes.begin(), frame.bytes.end());
      frame.header.payload_bytes = bytes->size();
      net.tasks_.push_back([this, to, bytes, header = frame.header, free = frame.released] {
        Frame arrived{header, {{}, bytes}};
        if (!bytes->empty()) arrived.payload.fragments = {*bytes};
        EXPECT_TRUE(net.engine(to).on_frame(std::move(arrived)).ok());
        free();
      });
      return {};
    }
    Net& net;
    const int host;
  };

  std::unique_ptr<Device> device_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::unique_ptr<QueueSender>> senders_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

Plan plan_of(Collective collective, const Strategy& global, int hosts, int root = 0) {
  Plan plan{collective, root, {{StrategyKind::centralized}, global}, {}};
  for (int host = 0; host < hosts; ++host) plan.hosts.push_back({host});
  return plan;
}

const std::vector<Strategy> kWindowStrategies = {{StrategyKind::centralized},
                                                 {StrategyKind::tree, 1},
                                                 {StrategyKind::tree, 2},
                                                 {StrategyKind::ring}};

Operation operation_of(const Plan& plan, int host, uint64_t count, Status& end) {
  Operation operation;
  operation.id = {1, 0, 0};
  operation.execution = make_execution_plan(plan, host);
  operation.count = count;
  operation.slice_bytes = kSliceBytes;
  operation.done = [&end](const Status& status) { end = status; };
  return operation;
}

const Status kUnderWay = internal_error("has not ended");

// A trainer's window is untrusted: a tensor that does not fit must not be accessed beyond it, even
// if it has only one slice.
TEST(RankTensorsTest, AWindowThatDoesNotHoldWholeSlicesIsRefused) {
  const Plan plan = plan_of(Collective::all_reduce, {StrategyKind::ring}, 3);
  constexpr uint64_t kWindowBytes = 2 * kSlicePartBytes;
  constexpr uint64_t kCount = 3 * kSlicePartBytes / 4;
  std::vector<std::byte> window(kWindowBytes);
  for (const uint64_t count : {kWindowBytes / 4, kCount, 9 * kCount}) {
    Net net(3);
    Status end = kUnderWay;
    Operation operation = operation_of(plan, 0, count, end);
    operation.slice_bytes = 4096;
    operation.local.push_back(
        {0, window.data(), window.data(), kWindowBytes, [] { return uint64_t{1} << 40; }});
    net.start(0, std::move(operation));
    net.run();
    const bool fits = count * 4 <= kWindowBytes;
    EXPECT_EQ(end.code(), fits ? kUnderWay.code() : Code::invalid_argument) << count;
    net.engine(0).abort(1, aborted("test ends"));
    net.run();
  }
}

// Slices that were ready and never finished hold no results.
TEST(RankTensorsTest, NothingOfACancelledOperationIsPassed) {
  const Plan plan = plan_of(Collective::all_reduce, {StrategyKind::ring}, 3);
  std::vector<std::byte> window(3 * kSlicePartBytes);
  Net net(3);
  Status end = kUnderWay;
  uint64_t passed = 0;
  Operation operation = operation_of(plan, 0, window.size() / 4, end);
  const OpId id = operation.id;
  operation.local.push_back(
      {0, window.data(), window.data(), uint64_t{1} << 30, [&] { return window.size(); }});
  operation.release_window = [&](uint64_t bytes) { passed += bytes; };
  net.start(0, std::move(operation));
  net.run();
  ASSERT_EQ(end, kUnderWay);
  net.engine(0).cancel(id, aborted("for all"));
  net.run();
  EXPECT_EQ(end.code(), Code::aborted);
  EXPECT_EQ(passed, 0u);
}

// Slices are sent before later ones are ready, and a window is enough memory.
TEST(HostTensorTest, SlicesStreamThroughAWindow) {
  constexpr int kHosts = 3;
  constexpr uint64_t kCount = 17 * kSliceBytes / 4 + 5;
  for (const Strategy& strategy : kWindowStrategies) {
    SCOPED_TRACE(to_string(strategy));
    const Plan plan = plan_of(Collective::all_reduce, strategy, kHosts);
    Net net(kHosts);
    std::vector<Status> ends(kHosts, kUnderWay);
    std::vector<std::shared_ptr<WindowTensor>> tensors;
    for (int host = 0; host < kHosts; ++host) {
      Status& end = ends[static_cast<size_t>(host)];
      Operation operation = operation_of(plan, host, kCount, end);
      tensors.push_back(std::make_shared<WindowTensor>(plan, host, kCount));
      operation.tensor = tensors.back();
      net.start(host, std::move(operation));
    }
    const uint64_t slices = tensors.front()->slices();
    ASSERT_GT(slices, 3u);
    for (uint64_t slice = 0; slice < slices; ++slice) {
      net.run();
      for (int host = 0; host < kHosts; ++host) {
        const auto& tensor = tensors[static_cast<size_t>(host)];
        EXPECT_EQ(tensor->finished_slices(), slice) << "those that came are through";
        EXPECT_EQ(tensor->released_slices(), slice);
        EXPECT_EQ(ends[static_cast<size_t>(host)], kUnderWay);
        tensor->may_fold = slice + 1 == slices ? slices : slice + 1;
        net.engine(host).resume({1, 0, 0});
      }
    }
    net.run();
    for (int host = 0; host < kHosts; ++host) {
      EXPECT_EQ(ends[static_cast<size_t>(host)].to_string(), "OK");
      const std::vector<float>& result = tensors[static_cast<size_t>(host)]->result();
      for (uint64_t i = 0; i < kCount; ++i)
        ASSERT_EQ(result[i], 3 + 3 * static_cast<float>(i % 1000)) << i;
    }
  }
}

TEST(HostTensorTest, AllReadyAtOnceNeverUsesMoreThanTheWindow) {
  for (const Strategy& strategy : kWindowStrategies) {
    const Plan plan = plan_of(Collective::all_reduce, strategy, 2);
    constexpr uint64_t kCount = 40 * kSliceBytes / 4;
    Net net(2);
    std::vector<Status> ends(2, kUnderWay);
    for (int host = 0; host < 2; ++host) {
      Operation operation = operation_of(plan, host, kCount, ends[static_cast<size_t>(host)]);
      const auto tensor = std::make_shared<WindowTensor>(plan, host, kCount);
      tensor->may_fold = UINT64_MAX;
      operation.tensor = tensor;
      net.start(host, std::move(operation));
    }
    net.run();
    EXPECT_EQ(ends[0].to_string(), "OK");
    EXPECT_EQ(ends[1].to_string(), "OK");
  }
}

TEST(HostTensorTest, ACancelledOperationReleasesWhatWasReady) {
  const Plan plan = plan_of(Collective::all_reduce, kWindowStrategies[0], 2);
  Net net(2);
  Status end = kUnderWay;
  Operation operation = operation_of(plan, 1, 40 * kSliceBytes / 4, end);
  const auto tensor = std::make_shared<WindowTensor>(plan, 1, 40 * kSliceBytes / 4);
  tensor->may_fold = 3;
  operation.tensor = tensor;
  net.start(1, std::move(operation));
  EXPECT_EQ(tensor->released_slices(), 0u);
  net.engine(1).cancel({1, 0, 0}, unavailable("rank 0 left"));
  EXPECT_EQ(end, kUnderWay) << "three frames are under way";
  net.run();
  EXPECT_EQ(end, unavailable("rank 0 left"));
  EXPECT_EQ(tensor->released_slices(), 3u);
  EXPECT_EQ(tensor->finished_slices(), 0u);
}

// No engine completes before all hosts have started, for every collective and size, whichever host
// starts last.
TEST(AgreementTest, NobodyIsThroughBeforeAllHaveStarted) {
  constexpr int kHosts = 4;
  for (const Collective collective : kEveryCollective)
    for (const Strategy& strategy : kWindowStrategies)
      for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{3}, uint64_t{100'000}})
        for (int last = 0; last < kHosts; ++last) {
          SCOPED_TRACE(std::string(name_of(collective)) + " " + to_string(strategy) + " of " +
                       std::to_string(count) + ", host " + std::to_string(last) + " last");
          const Plan plan = plan_of(collective, strategy, kHosts, 1);
          Net net(kHosts);
          std::vector<Status> ends(kHosts, kUnderWay);
          std::vector<std::vector<float>> tensors(kHosts, std::vector<float>(count * kHosts, 1));
          const auto start = [&](int host) {
            Operation operation = operation_of(plan, host, count, ends[static_cast<size_t>(host)]);
            auto* data = reinterpret_cast<std::byte*>(tensors[static_cast<size_t>(host)].data());
            operation.local = {{host, data, data}};
            net.start(host, std::move(operation));
          };
          for (int host = 0; host < kHosts; ++host)
            if (host != last) start(host);
          net.run();
          EXPECT_EQ(ends, std::vector<Status>(kHosts, kUnderWay));
          start(last);
          net.run();
          EXPECT_EQ(ends, std::vector<Status>(kHosts));
        }
}

}  // namespace
}  // namespace tutti

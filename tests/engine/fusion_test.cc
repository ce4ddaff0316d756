// A host folds, finishes and distributes in one pass over memory, with the same values as in three,
// alone and with what another host has sent.
#include <gtest/gtest.h>

#include <deque>
#include <numeric>

#include "daemon/engine/engine.h"

namespace tutti {
namespace {

// Counts the calls of a host device; the test sets the cache size.
class CountedDevice : public Device {
 public:
  std::string name() const override { return host_->name(); }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes) override { return host_->allocate(bytes); }
  Result<MemoryHandle> export_memory(const Buffer& buffer) override {
    return host_->export_memory(buffer);
  }
  Result<std::unique_ptr<Buffer>> import_memory(const MemoryHandle& handle) override {
    return host_->import_memory(handle);
  }
  Result<std::unique_ptr<Stream>> make_stream() override { return host_->make_stream(); }
  Result<std::unique_ptr<Event>> record(Stream& stream) override { return host_->record(stream); }
  Status wait(Stream& stream, const Event& event) override { return host_->wait(stream, event); }
  Status wait(Stream& stream) override { return host_->wait(stream); }
  Status copy(Stream& stream, void* to, const void* from, size_t bytes) override {
    ++copies;
    return host_->copy(stream, to, from, bytes);
  }
  Status reduce(Stream& stream, std::span<const Target> targets, std::span<const Operand> sources,
                const Reduction& how) override {
    ++reductions;
    past_cache += how.past_cache ? 1 : 0;
    return host_->reduce(stream, targets, sources, how);
  }
  size_t cache_bytes() const override { return cache; }

  int copies = 0;
  int reductions = 0;
  int past_cache = 0;
  size_t cache = SIZE_MAX;

 private:
  std::unique_ptr<Device> host_ = make_host_device();
};

constexpr int kRanks = 4;
constexpr uint64_t kCount = 1000;  // One slice.

// One host's ranks reduce f32; rank r contributes r + i in place i.
class FusionTest : public ::testing::Test {
 protected:
  void all_reduce(Strategy strategy, bool in_place) {
    Plan plan;
    plan.strategies = {strategy, strategy};
    plan.hosts = {{0, 1, 2, 3}};
    Operation operation;
    operation.execution = make_execution_plan(plan, 0);
    operation.op = Op::mean;
    operation.count = kCount;
    operation.slice_bytes = uint64_t{1} << 20;
    for (int rank = 0; rank < kRanks; ++rank) {
      in[rank].resize(kCount);
      out[rank].assign(kCount, -1);
      std::iota(in[rank].begin(), in[rank].end(), static_cast<float>(rank));
      std::vector<float>& result = in_place ? in[rank] : out[rank];
      operation.local.push_back({rank, reinterpret_cast<const std::byte*>(in[rank].data()),
                                 reinterpret_cast<std::byte*>(result.data())});
    }
    Status ended = internal_error("has not ended");
    operation.done = [&](const Status& status) { ended = status; };
    const std::unique_ptr<Engine> engine =
        make_engine(device, {}, [](const auto& task) { task(); });
    engine->start(std::move(operation));
    EXPECT_EQ(ended.to_string(), "OK");
    expect_means(in_place ? in : out);
  }

  static void expect_means(const std::vector<float> (&results)[kRanks]) {
    std::vector<float> expected(kCount);
    std::iota(expected.begin(), expected.end(), 1.5f);
    for (const std::vector<float>& result : results) EXPECT_EQ(result, expected);
  }

  CountedDevice device;
  std::vector<float> in[kRanks];
  std::vector<float> out[kRanks];
};

TEST_F(FusionTest, OnePassFoldsDividesAndSpreads) {
  for (const bool in_place : {true, false}) {
    device.reductions = 0;
    all_reduce({StrategyKind::centralized, 0}, in_place);
    EXPECT_EQ(device.reductions, 1);
    EXPECT_EQ(device.copies, 0);
  }
}

TEST_F(FusionTest, SoIsAChainAndATreeTakesOneForEachMemberWithChildren) {
  all_reduce({StrategyKind::tree, 1}, true);
  EXPECT_EQ(device.reductions, 1);
  all_reduce({StrategyKind::ring, 0}, true);
  EXPECT_EQ(device.reductions, 2);
  all_reduce({StrategyKind::tree, 2}, true);
  EXPECT_EQ(device.reductions, 4);
  EXPECT_EQ(device.copies, 0);
}

TEST_F(FusionTest, WhatExceedsTheCacheIsStoredPastItUnlessItIsASource) {
  device.cache = kRanks * kCount * sizeof(float);
  all_reduce({StrategyKind::centralized, 0}, true);
  EXPECT_EQ(device.past_cache, 0);
  all_reduce({StrategyKind::centralized, 0}, false);
  EXPECT_EQ(device.past_cache, 1);
  ++device.cache;
  all_reduce({StrategyKind::centralized, 0}, false);
  EXPECT_EQ(device.past_cache, 1);
}

// Two hosts of two ranks, whose frames are queued until run().
class TwoHosts {
 public:
  explicit TwoHosts(uint64_t count) : count_(count) {
    for (int host = 0; host < 2; ++host)
      engines_[host] =
          make_engine(devices[host], {}, [this](auto task) { tasks_.push_back(std::move(task)); });
  }

  void all_reduce(const Strategy& strategy, uint64_t slice_bytes) {
    const Plan plan{Collective::all_reduce, 0, {strategy, strategy}, {{0, 1}, {2, 3}}};
    Status ends[2] = {internal_error("has not ended"), internal_error("has not ended")};
    for (int host = 0; host < 2; ++host) {
      Operation operation;
      operation.id = {1, 0, 0};
      operation.execution = make_execution_plan(plan, host);
      operation.count = count_;
      operation.slice_bytes = slice_bytes;
      operation.sender = &senders_[host];
      for (const int rank : plan.hosts[host]) {
        in[rank].resize(count_);
        std::iota(in[rank].begin(), in[rank].end(), static_cast<float>(rank));
        out[rank].assign(count_, -1);
        operation.local.push_back({rank, reinterpret_cast<const std::byte*>(in[rank].data()),
                                   reinterpret_cast<std::byte*>(out[rank].data())});
      }
      operation.done = [&ends, host](const Status& status) { ends[host] = status; };
      engines_[host]->start(std::move(operation));
    }
    for (; !tasks_.empty(); tasks_.pop_front()) tasks_.front()();
    for (const Status& end : ends) EXPECT_EQ(end.to_string(), "OK");
    for (const std::vector<float>& result : out)
      for (uint64_t i = 0; i < count_; ++i) ASSERT_EQ(result[i], 6 + 4 * static_cast<float>(i));
  }

  CountedDevice devices[2];
  std::vector<float> in[kRanks];
  std::vector<float> out[kRanks];

 private:
  struct QueueSender final : FrameSender {
    explicit QueueSender(TwoHosts& its_hosts) : hosts(its_hosts) {}
    Status send(const OpId&, int to, Outgoing frame) override {
      const auto bytes =
          std::make_shared<std::vector<std::byte>>(frame.bytes.begin(), frame.bytes.end());
      frame.header.payload_bytes = bytes->size();
      hosts.tasks_.push_back([this, to, bytes, header = frame.header, free = frame.released] {
        Frame arrived{header, {{}, bytes}};
        if (!bytes->empty()) arrived.payload.fragments = {*bytes};
        EXPECT_TRUE(hosts.engines_[to]->on_frame(std::move(arrived)).ok());
        free();
      });
      return {};
    }
    TwoHosts& hosts;
  };

  const uint64_t count_;
  std::unique_ptr<Engine> engines_[2];
  std::deque<std::function<void()>> tasks_;
  QueueSender senders_[2] = {QueueSender(*this), QueueSender(*this)};
};

TEST(FusionOfHostsTest, WhatAPeerHasSentIsFoldedInTheSamePassIntoAllResults) {
  constexpr uint64_t kSliceBytes = 2 * kSlicePartBytes;
  constexpr int kSlices = 20;
  TwoHosts hosts(kSlices * kSliceBytes / sizeof(float));
  hosts.all_reduce({StrategyKind::ring, 0}, kSliceBytes);
  for (const CountedDevice& device : hosts.devices) {
    EXPECT_EQ(device.reductions, 2 * kSlices) << "one for each chunk of a slice";
    EXPECT_EQ(device.copies, kSlices) << "of what came as a result, to the second rank";
  }
}

TEST(FusionOfHostsTest, AShortTensorIsFoldedWhileTheFrameIsUnderWay) {
  TwoHosts hosts(1000);
  hosts.all_reduce({StrategyKind::centralized, 0}, kSlicePartBytes);
  EXPECT_EQ(hosts.devices[0].reductions, 2) << "its ranks', and then what came";
  EXPECT_EQ(hosts.devices[1].reductions, 1);
}

}  // namespace
}  // namespace tutti

// The engine alone: how tensors are cut, and what it does with frames nobody expects. Values are
// world_test's.
#include "daemon/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/engine/geometry.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Recipe> recipe_of(Collective collective, StrategyKind kind, int hosts) {
  Plan plan;
  plan.collective = collective;
  plan.strategies = {{kind, 0}, {kind, 0}};
  for (int host = 0; host < hosts; ++host) plan.hosts.push_back({host});
  return std::make_shared<const Recipe>(Recipe{plan, moves_of(plan, 0)});
}

Operation operation_of(std::shared_ptr<const Recipe> recipe, uint64_t count) {
  Operation operation;
  operation.recipe = std::move(recipe);
  operation.count = count;
  operation.slice_bytes = 64 * 1024;
  operation.dtype = Dtype::f32;
  return operation;
}

class GeometryTest : public ::testing::TestWithParam<uint64_t> {};

// Every element is in exactly one slice of one chunk, in order.
TEST_P(GeometryTest, SlicesCoverTheTensorOnce) {
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather})
    for (const int hosts : {1, 2, 3, 7}) {
      const Operation operation =
          operation_of(recipe_of(collective, StrategyKind::ring, hosts), GetParam());
      const Geometry geometry(operation);
      uint64_t next = 0;
      for (int chunk = 0; chunk < chunk_count(operation.recipe->plan); ++chunk)
        for (uint64_t slice = 0; slice < geometry.slices(); ++slice) {
          const Range range = geometry.slice(chunk, slice);
          if (range.count == 0) continue;
          ASSERT_EQ(range.first, next);
          next += range.count;
        }
      const uint64_t blocks = collective == Collective::all_gather ? hosts : 1;
      EXPECT_EQ(next, GetParam() * blocks);
    }
}

INSTANTIATE_TEST_SUITE_P(Counts, GeometryTest,
                         ::testing::Values(0, 1, 2, 6, 7, 8, 16'384, 16'385, 1'000'003));

TEST(GeometryTest, BlocksLieWhereTheCollectiveSays) {
  const std::byte* base = reinterpret_cast<const std::byte*>(uintptr_t{1 << 20});
  auto* out = reinterpret_cast<std::byte*>(uintptr_t{2 << 20});
  const RankBuffers buffers{1, base, out};
  const Operation gather =
      operation_of(recipe_of(Collective::all_gather, StrategyKind::ring, 3), 10);
  const Geometry gathered(gather);
  EXPECT_EQ(gathered.input(buffers, 1, gathered.slice(1, 0)), base);
  EXPECT_EQ(gathered.input(buffers, 0, gathered.slice(0, 0)), nullptr);
  EXPECT_EQ(gathered.home(buffers, 2, gathered.slice(2, 0)), out + 2 * 10 * 4);
  const Operation scatter =
      operation_of(recipe_of(Collective::reduce_scatter, StrategyKind::ring, 3), 10);
  const Geometry scattered(scatter);
  EXPECT_EQ(scattered.input(buffers, 2, scattered.slice(2, 0)), base + 2 * 10 * 4);
  EXPECT_EQ(scattered.home(buffers, 1, scattered.slice(1, 0)), out);
  EXPECT_EQ(scattered.home(buffers, 2, scattered.slice(2, 0)), nullptr);
}

// Keeps what is sent, and can be full.
class FakeWire : public Wire {
 public:
  Status send(const OpKey&, int, Outgoing frame) override {
    if (full) return resource_exhausted("the queue is full");
    sent.push_back(std::move(frame));
    return {};
  }
  bool full = false;
  std::vector<Outgoing> sent;
};

class EngineTest : public ::testing::Test {
 protected:
  static Frame frame(uint64_t seq, uint32_t slice, size_t bytes) {
    const auto data = std::make_shared<std::vector<std::byte>>(bytes);
    Frame frame;
    frame.header.epoch = 1;
    frame.header.op_seq = seq;
    frame.header.slice = slice;
    frame.header.from = 1;
    frame.payload.fragments = {*data};
    frame.payload.owner = data;
    return frame;
  }

  Operation all_reduce(uint64_t seq) {
    Operation operation =
        operation_of(recipe_of(Collective::all_reduce, StrategyKind::centralized, 2), 4);
    operation.key = {1, 0, seq};
    auto* tensor = reinterpret_cast<std::byte*>(tensor_.data());
    operation.local = {{0, tensor, tensor}};
    operation.done = [this](const Status& status) { ends_.push_back(status); };
    return operation;
  }

  void run_posted() {
    while (!posted_.empty()) {
      auto task = std::move(posted_.front());
      posted_.erase(posted_.begin());
      task();
    }
  }

  std::vector<float> tensor_ = {1, 2, 3, 4};
  std::vector<Status> ends_;
  std::vector<std::function<void()>> posted_;
  std::unique_ptr<Device> device_ = make_host_device();
  FakeWire wire_;
  std::unique_ptr<Engine> engine_ = make_engine(*device_, wire_, {.stash_bytes_max = 1000},
                                                [this](auto task) { posted_.push_back(task); });
};

TEST_F(EngineTest, AnEarlyFrameWaitsForItsOperation) {
  ASSERT_TRUE(engine_->on_frame(frame(0, 0, 16)).ok());
  engine_->start(all_reduce(0));
  ASSERT_EQ(wire_.sent.size(), 1u);
  EXPECT_TRUE(ends_.empty()) << "the tensor is still borrowed";
  wire_.sent[0].released();
  run_posted();
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_TRUE(ends_[0].ok());
  EXPECT_EQ(tensor_, (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(EngineTest, TheOldestAreUnderWayAndTheNextFollows) {
  const uint64_t next = EngineLimits().ops_in_flight;
  for (uint64_t seq = 0; seq <= next; ++seq) engine_->start(all_reduce(seq));
  ASSERT_TRUE(engine_->on_frame(frame(next, 0, 16)).ok());
  run_posted();
  EXPECT_TRUE(wire_.sent.empty()) << "it is not its turn";
  ASSERT_TRUE(engine_->on_frame(frame(1, 0, 16)).ok());
  ASSERT_EQ(wire_.sent.size(), 1u);
  EXPECT_EQ(wire_.sent[0].header.op_seq, 1u);
  wire_.sent[0].released();
  run_posted();
  ASSERT_EQ(wire_.sent.size(), 2u);
  EXPECT_EQ(wire_.sent[1].header.op_seq, next);
  EXPECT_EQ(ends_.size(), 1u);
  EXPECT_EQ(engine_->waiting({1, 0, 0}).rank, 1);
  EXPECT_EQ(engine_->waiting({1, 0, 1}).what, "its turn");
  wire_.sent[1].released();
  engine_->abort(1, aborted("test ends"));
  run_posted();
}

TEST_F(EngineTest, EarlyFramesAreBounded) {
  EXPECT_TRUE(engine_->on_frame(frame(0, 0, 800)).ok());
  EXPECT_EQ(engine_->on_frame(frame(1, 0, 800)).code(), Code::resource_exhausted);
  engine_->abort(1, aborted("over"));
  EXPECT_TRUE(engine_->on_frame(frame(1, 0, 800)).ok()) << "an abort frees what was kept";
}

TEST_F(EngineTest, AFrameThatComesTwiceIsRefused) {
  EXPECT_TRUE(engine_->on_frame(frame(0, 0, 16)).ok());
  EXPECT_EQ(engine_->on_frame(frame(0, 0, 16)).code(), Code::data_loss);
  engine_->start(all_reduce(1));
  EXPECT_TRUE(engine_->on_frame(frame(1, 9, 16)).ok());
  EXPECT_EQ(engine_->on_frame(frame(1, 9, 16)).code(), Code::data_loss);
}

TEST_F(EngineTest, ALyingLengthEndsTheOperationAndNamesTheSender) {
  engine_->start(all_reduce(0));
  EXPECT_THAT(engine_->waiting({1, 0, 0}).what, HasSubstr("slice 0: chunk 0 from rank 1"));
  EXPECT_EQ(engine_->waiting({1, 0, 0}).rank, 1);
  EXPECT_TRUE(engine_->on_frame(frame(0, 0, 12)).ok());
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].code(), Code::data_loss);
  EXPECT_EQ(ends_[0].culprit().rank, 1);
}

TEST_F(EngineTest, AFullLinkIsTriedAgainAtTheNextEvent) {
  wire_.full = true;
  engine_->start(all_reduce(0));
  ASSERT_TRUE(engine_->on_frame(frame(0, 0, 16)).ok());
  EXPECT_TRUE(wire_.sent.empty());
  wire_.full = false;
  ASSERT_TRUE(engine_->on_frame(frame(7, 0, 1)).ok()) << "of another operation";
  engine_->start(all_reduce(1));  // Any event moves all that can move.
  ASSERT_FALSE(wire_.sent.empty());
  wire_.sent[0].released();
  run_posted();
  EXPECT_EQ(ends_.size(), 1u);
}

TEST_F(EngineTest, AnAbortEndsWhatRunsAndBorrowedMemoryOutlivesIt) {
  Operation operation = all_reduce(0);
  const auto memory = std::make_shared<int>(7);
  operation.memory = {memory};
  ASSERT_TRUE(engine_->on_frame(frame(0, 0, 16)).ok());
  engine_->start(std::move(operation));
  engine_->abort(1, unavailable("the peer died"));
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0], unavailable("the peer died"));
  EXPECT_GT(memory.use_count(), 1) << "a link may still read it";
  wire_.sent[0].released();
  wire_.sent.clear();
  run_posted();
  EXPECT_EQ(memory.use_count(), 1);
}

}  // namespace
}  // namespace tutti

// The engine alone: geometry, early, late, repeated and foreign frames, cancellation. The group
// room's epoch_test.cc checks values.
#include "daemon/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/engine/ended_operations.h"
#include "daemon/engine/geometry.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const ExecutionPlan> execution_plan_of(Collective collective, StrategyKind kind,
                                                       int hosts) {
  Plan plan;
  plan.collective = collective;
  plan.strategies = {{kind, 0}, {kind, 0}};
  for (int host = 0; host < hosts; ++host) plan.hosts.push_back({host});
  return make_execution_plan(plan, 0);
}

Operation operation_of(std::shared_ptr<const ExecutionPlan> execution, uint64_t count) {
  Operation operation;
  operation.execution = std::move(execution);
  operation.count = count;
  operation.slice_bytes = 64 * 1024;
  operation.dtype = Dtype::f32;
  return operation;
}

class GeometryTest : public ::testing::TestWithParam<uint64_t> {};

Geometry geometry_of(Collective collective, int hosts, uint64_t count) {
  const auto execution = execution_plan_of(collective, StrategyKind::ring, hosts);
  return {execution->plan, Dtype::f32, count, 64 * 1024};
}

// Every element is in exactly one chunk of one slice; slices follow each other, and chunks within.
TEST_P(GeometryTest, SlicesCoverTheTensorOnceInOrder) {
  for (const int hosts : {1, 2, 3, 7}) {
    const Geometry geometry = geometry_of(Collective::all_reduce, hosts, GetParam());
    uint64_t next = 0;
    for (uint64_t slice = 0; slice < geometry.slices(); ++slice)
      for (int chunk = 0; chunk < geometry.chunks(); ++chunk) {
        const Range range = geometry.slice(chunk, slice);
        if (range.count == 0) continue;
        ASSERT_EQ(range.first, next);
        next += range.count;
      }
    EXPECT_EQ(next, GetParam());
    const Range first = geometry.slice(0, 0);
    EXPECT_EQ(first.count == 0, GetParam() == 0) << "the first chunk is the longest";
  }
}

// A slice has a part of every block.
TEST_P(GeometryTest, SlicesCoverEveryBlockOnce) {
  for (const int hosts : {1, 2, 3, 7}) {
    const Geometry geometry = geometry_of(Collective::all_gather, hosts, GetParam());
    for (int chunk = 0; chunk < hosts; ++chunk) {
      uint64_t next = 0;
      for (uint64_t slice = 0; slice < geometry.slices(); ++slice) {
        const Range range = geometry.slice(chunk, slice);
        ASSERT_EQ(range.first, next);
        next += range.count;
      }
      EXPECT_EQ(next, GetParam());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Counts, GeometryTest,
                         ::testing::Values(0, 1, 2, 6, 7, 8, 16'384, 16'385, 1'000'003));

TEST(GeometryTest, NoChunkOfASliceIsShorterThanTheLeast) {
  const Geometry geometry = geometry_of(Collective::all_reduce, 7, 1'000'003);
  EXPECT_GE(geometry.slice(6, 0).count * 4, kSlicePartBytes);
  EXPECT_EQ(geometry.slice(0, 1).first * 4, 8 * kSlicePartBytes);
  EXPECT_EQ(geometry.end_of(0), 8 * kSlicePartBytes);
  EXPECT_EQ(geometry.end_of(7), 1'000'003u * 4) << "the last one";
}

TEST(GeometryTest, SlicesGrowByPowersOfTwo) {
  EXPECT_EQ(whole_slice_bytes(1 << 20, 1), 1u << 20);
  EXPECT_EQ(whole_slice_bytes(1 << 20, 16), 1u << 20);
  EXPECT_EQ(whole_slice_bytes(1 << 20, 17), 2u << 20);
  EXPECT_EQ(whole_slice_bytes(1 << 20, 100), 8u << 20);
}

TEST(GeometryTest, BlocksLieWhereTheCollectiveSays) {
  const Geometry gather = geometry_of(Collective::all_gather, 3, 10);
  EXPECT_EQ(gather.input_offset(1, gather.slice(1, 0)), 0u);
  EXPECT_EQ(gather.output_offset(2, gather.slice(2, 0)), 2u * 10 * 4);
  const Geometry scatter = geometry_of(Collective::reduce_scatter, 3, 10);
  EXPECT_EQ(scatter.input_offset(2, scatter.slice(2, 0)), 2u * 10 * 4);
  EXPECT_EQ(scatter.output_offset(1, scatter.slice(1, 0)), 0u);
}

TEST(GeometryTest, BlocksWithCountsEndWhereTheyEnd) {
  const auto execution = execution_plan_of(Collective::all_gather, StrategyKind::ring, 3);
  const std::vector<uint64_t> counts = {40'000, 0, 70'001};
  const Geometry gather(execution->plan, Dtype::f32, 70'001, 64 * 1024, counts);
  EXPECT_GT(gather.slices(), 2u);
  EXPECT_FALSE(gather.is_empty());
  EXPECT_TRUE(gather.sends_empty_blocks());
  for (int chunk = 0; chunk < 3; ++chunk) {
    uint64_t next = 0;
    for (uint64_t slice = 0; slice < gather.slices(); ++slice) {
      const Range range = gather.slice(chunk, slice);
      ASSERT_EQ(range.first, next);
      next += range.count;
    }
    EXPECT_EQ(next, counts[static_cast<size_t>(chunk)]);
  }
  const Range second = gather.slice(2, 1);
  EXPECT_EQ(gather.output_offset(2, second), (40'000 + second.first) * 4);
  EXPECT_EQ(gather.input_offset(2, second), second.first * 4);
}

// Keeps what is sent; refuses frames while `full`.
class FakeSender : public FrameSender {
 public:
  Status send(const OpId&, int, Outgoing frame) override {
    if (full) return resource_exhausted("the queue is full");
    sent.push_back(std::move(frame));
    return {};
  }
  bool full = false;
  std::vector<Outgoing> sent;
};

class EngineTest : public ::testing::Test {
 protected:
  static Frame frame(uint64_t seq, uint32_t slice, size_t bytes, uint64_t agreement = 0) {
    const auto data = std::make_shared<std::vector<std::byte>>(bytes);
    Frame frame;
    frame.header.epoch = 1;
    frame.header.op_seq = seq;
    frame.header.slice = slice;
    frame.header.agreement = agreement;
    frame.header.from = 1;
    frame.payload.fragments = {*data};
    frame.payload.owner = data;
    return frame;
  }

  Operation all_reduce(uint64_t seq) {
    Operation operation =
        operation_of(execution_plan_of(Collective::all_reduce, StrategyKind::centralized, 2), 4);
    operation.id = {1, 0, seq};
    operation.sender = &sender_;
    auto* tensor = reinterpret_cast<std::byte*>(tensor_.data());
    operation.local = {{0, tensor, tensor}};
    operation.done = [this](const Status& status) { ends_.push_back(status); };
    operation.mismatch = [this, seq](int from) { mismatches_.emplace_back(seq, from); };
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
  std::vector<std::pair<uint64_t, int>> mismatches_;
  std::vector<std::function<void()>> posted_;
  std::unique_ptr<Device> device_ = make_host_device();
  FakeSender sender_;
  std::unique_ptr<Engine> engine_ = make_engine(*device_, {.kept_early_bytes_max = 1000},
                                                [this](auto task) { posted_.push_back(task); });
};

TEST_F(EngineTest, AnEarlyFrameWaitsForItsOperation) {
  ASSERT_TRUE(engine_->on_frame(frame(0, 0, 16)).ok());
  engine_->start(all_reduce(0));
  ASSERT_EQ(sender_.sent.size(), 1u);
  EXPECT_TRUE(ends_.empty()) << "the tensor is still borrowed";
  sender_.sent[0].released();
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
  EXPECT_TRUE(sender_.sent.empty()) << "it is not its turn";
  ASSERT_TRUE(engine_->on_frame(frame(1, 0, 16)).ok());
  ASSERT_EQ(sender_.sent.size(), 1u);
  EXPECT_EQ(sender_.sent[0].header.op_seq, 1u);
  sender_.sent[0].released();
  run_posted();
  ASSERT_EQ(sender_.sent.size(), 2u);
  EXPECT_EQ(sender_.sent[1].header.op_seq, next);
  EXPECT_EQ(ends_.size(), 1u);
  EXPECT_EQ(engine_->blocker({1, 0, 0}).rank, 1);
  EXPECT_EQ(engine_->blocker({1, 0, 1}).what, "an earlier operation");
  sender_.sent[1].released();
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
  EXPECT_THAT(engine_->blocker({1, 0, 0}).what, HasSubstr("slice 0: chunk 0 from rank 1"));
  EXPECT_EQ(engine_->blocker({1, 0, 0}).rank, 1);
  EXPECT_TRUE(engine_->on_frame(frame(0, 0, 12)).ok());
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].code(), Code::data_loss);
  EXPECT_EQ(ends_[0].culprit().rank, 1);
}

TEST_F(EngineTest, AFullLinkIsTriedAgainAtTheNextEvent) {
  sender_.full = true;
  engine_->start(all_reduce(0));
  ASSERT_TRUE(engine_->on_frame(frame(0, 0, 16)).ok());
  EXPECT_TRUE(sender_.sent.empty());
  sender_.full = false;
  ASSERT_TRUE(engine_->on_frame(frame(7, 0, 1)).ok()) << "of another operation";
  engine_->start(all_reduce(1));  // Any event moves all that can move.
  ASSERT_FALSE(sender_.sent.empty());
  sender_.sent[0].released();
  run_posted();
  EXPECT_EQ(ends_.size(), 1u);
}

TEST_F(EngineTest, AnAbortEndsWhatRunsOnceItsMemoryIsFree) {
  Operation operation = all_reduce(0);
  const auto memory = std::make_shared<int>(7);
  operation.memory = {memory};
  ASSERT_TRUE(engine_->on_frame(frame(0, 0, 16)).ok());
  engine_->start(std::move(operation));
  engine_->abort(1, unavailable("the peer died"));
  EXPECT_TRUE(ends_.empty()) << "a link may still read it";
  EXPECT_GT(memory.use_count(), 1);
  sender_.sent[0].released();
  sender_.sent.clear();
  run_posted();
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0], unavailable("the peer died"));
  EXPECT_EQ(memory.use_count(), 1);
}

// ---- Ended operations ----

TEST_F(EngineTest, ACancelledOperationEndsOnceItsMemoryIsFreeAndNothingElseDoes) {
  ASSERT_TRUE(engine_->on_frame(frame(0, 0, 16)).ok());
  engine_->start(all_reduce(0));
  engine_->start(all_reduce(1));
  ASSERT_EQ(sender_.sent.size(), 1u);
  engine_->cancel({1, 0, 0}, unavailable("rank 1 left"));
  EXPECT_TRUE(ends_.empty());
  EXPECT_EQ(engine_->blocker({1, 0, 0}).what, "an earlier operation") << "it runs no more";
  sender_.sent[0].released();
  run_posted();
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0], unavailable("rank 1 left"));
  ASSERT_TRUE(engine_->on_frame(frame(1, 0, 16)).ok());
  sender_.sent[1].released();
  run_posted();
  ASSERT_EQ(ends_.size(), 2u);
  EXPECT_EQ(ends_[1].to_string(), "OK");
}

TEST_F(EngineTest, WithNothingLentItEndsAtOnce) {
  engine_->start(all_reduce(0));
  engine_->cancel({1, 0, 0}, unavailable("rank 1 left"));
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0], unavailable("rank 1 left"));
  engine_->cancel({1, 0, 0}, unavailable("told twice"));
  EXPECT_EQ(ends_.size(), 1u);
}

// The fixture keeps at most 1000 bytes of early frames.
TEST_F(EngineTest, FramesOfAnOperationThatIsOverAreNotKept) {
  ASSERT_TRUE(engine_->on_frame(frame(0, 0, 800)).ok());
  engine_->cancel({1, 0, 0}, unavailable("never starts here"));
  engine_->start(all_reduce(1));
  engine_->cancel({1, 0, 1}, unavailable("starts, and ends"));
  for (uint32_t slice = 0; slice < 10; ++slice)
    for (const uint64_t seq : {0, 1})
      EXPECT_TRUE(engine_->on_frame(frame(seq, slice, 800)).ok()) << seq;
  EXPECT_TRUE(engine_->on_frame(frame(2, 0, 800)).ok()) << "one still to come is kept";
  EXPECT_EQ(engine_->on_frame(frame(3, 0, 800)).code(), Code::resource_exhausted);
}

TEST_F(EngineTest, ACompletedOperationsLateFrameIsNotKept) {
  engine_->start(all_reduce(0));
  ASSERT_TRUE(engine_->on_frame(frame(0, 0, 16)).ok());
  sender_.sent[0].released();
  run_posted();
  ASSERT_EQ(ends_.size(), 1u);
  for (uint32_t slice = 1; slice < 10; ++slice)
    EXPECT_TRUE(engine_->on_frame(frame(0, slice, 800)).ok());
  EXPECT_TRUE(engine_->on_frame(frame(1, 0, 800)).ok());
}

TEST(PastTest, NumbersBelowAMarkAndAFewBeyondIt) {
  EndedOperations past;
  EXPECT_FALSE(past.contains(0));
  for (const uint64_t number : {1, 2, 5}) past.add(number);
  EXPECT_FALSE(past.contains(0));
  EXPECT_TRUE(past.contains(1) && past.contains(2) && past.contains(5));
  past.add(0);
  EXPECT_TRUE(past.contains(0) && past.contains(2) && past.contains(5));
  EXPECT_FALSE(past.contains(3) || past.contains(4) || past.contains(6));
}

// Number 0 never ends. Bounded memory requires that it is forgotten.
TEST(PastTest, AGapIsKeptOpenForManyNumbersAndThenNoMore) {
  EndedOperations past;
  for (uint64_t number = 1; number <= EndedOperations::kBeyondMax; ++number) past.add(number);
  EXPECT_FALSE(past.contains(0));
  past.add(EndedOperations::kBeyondMax + 1);
  EXPECT_TRUE(past.contains(0));
  EXPECT_FALSE(past.contains(EndedOperations::kBeyondMax + 2));
}

// ---- Disagreement ----

TEST_F(EngineTest, AFrameOfAnotherAgreementIsReportedAndNeverUsed) {
  Operation operation = all_reduce(0);
  operation.agreement = 7;
  ASSERT_TRUE(engine_->on_frame(frame(0, 0, 16, 8)).ok()) << "before the start";
  ASSERT_TRUE(engine_->on_frame(frame(0, 1, 16, 8)).ok());
  engine_->start(std::move(operation));
  EXPECT_EQ(mismatches_, (std::vector<std::pair<uint64_t, int>>{{0, 1}})) << "once of each sender";
  ASSERT_TRUE(engine_->on_frame(frame(0, 0, 16, 9)).ok()) << "and after it";
  EXPECT_EQ(mismatches_.size(), 2u);
  EXPECT_EQ(engine_->recv_buffer_for(frame(0, 0, 16, 9).header), nullptr);
  EXPECT_TRUE(sender_.sent.empty()) << "nothing was folded";
  ASSERT_TRUE(engine_->on_frame(frame(0, 0, 16, 7)).ok());
  ASSERT_EQ(sender_.sent.size(), 1u);
  EXPECT_EQ(sender_.sent[0].header.agreement, 7u);
  EXPECT_EQ(tensor_, (std::vector<float>{1, 2, 3, 4}));
  sender_.sent[0].released();
  run_posted();
}

TEST_F(EngineTest, WhoHearsOfAMismatchMayCancelFromInside) {
  Operation operation = all_reduce(0);
  operation.agreement = 7;
  operation.mismatch = [this, id = operation.id](int) {
    engine_->cancel(id, failed_precondition("they differ"));
  };
  ASSERT_TRUE(engine_->on_frame(frame(0, 0, 16, 8)).ok());
  engine_->start(std::move(operation));
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0], failed_precondition("they differ"));
}

// ---- Several groups ----

TEST_F(EngineTest, AGroupsOldestNeverWaitForAnotherGroup) {
  const uint64_t window = EngineLimits().ops_in_flight;
  for (uint64_t seq = 0; seq < window; ++seq) engine_->start(all_reduce(seq));
  Operation other = all_reduce(0);
  other.id.group = 9;
  engine_->start(std::move(other));
  Frame arrived = frame(0, 0, 16);
  arrived.header.group = 9;
  ASSERT_TRUE(engine_->on_frame(std::move(arrived)).ok());
  ASSERT_EQ(sender_.sent.size(), 1u);
  EXPECT_EQ(sender_.sent[0].header.group, 9u);
  sender_.sent[0].released();
  run_posted();
  EXPECT_EQ(ends_.size(), 1u);
}

}  // namespace
}  // namespace tutti

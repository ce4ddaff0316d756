// How operations end: without memory, abandoned, or awaited by several threads.
#include <gmock/gmock.h>

#include "tests/client/two_ranks.h"
#include "tests/support/scarce_memory.h"

namespace tutti::client {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tutti::testing::NoMemory;

class CompletionTest : public TwoRanksTest {
 protected:
  // Rank 0 submits an operation that holds a block, and the worker takes it over.
  void submit(const std::shared_ptr<PendingOp>& op) {
    std::byte* block = ranks_[0].connection->own_memory().allocate(4096);
    op->resources.blocks.push_back(ranks_[0].connection->own_memory().offset_of(block));
    ASSERT_TRUE(ranks_[0].arrive(*op, 1).ok());
    board_->set_ranks_decide(false);
    drain(loop_);
  }
  // The worker fails the operation.
  void fail() {
    board_->complete({0, 0}, unavailable("what is too long for a short string", {1, "h"}));
  }
  uint64_t used_bytes() { return ranks_[0].connection->own_memory().used_bytes(); }
};

// An arrival that failed half-way would leave the other ranks with an operation that nobody knows.
TEST_F(CompletionTest, AnArrivalNeedsNoMemory) {
  PendingOp op;
  Status arrived;
  {
    const NoMemory none;
    arrived = ranks_[0].arrive(op, 1);
  }
  EXPECT_TRUE(arrived.ok()) << arrived.message();
  EXPECT_TRUE(op.has_arrived);
  board_->complete({0, 0}, {});
  EXPECT_TRUE(queue(0).poll(op));
}

TEST_F(CompletionTest, AFailureIsReadWithoutMemory) {
  const auto op = std::make_shared<PendingOp>();
  submit(op);
  fail();
  {
    const NoMemory none;
    EXPECT_TRUE(queue(0).poll(*op));
  }
  EXPECT_EQ(op->outcome.code(), Code::unavailable);
  EXPECT_EQ(op->outcome.culprit().rank, 1);
  EXPECT_EQ(op->outcome.message(), "out of memory");
  EXPECT_EQ(area().settled(0).load(), 1u);
}

TEST_F(CompletionTest, AnAbandonedOperationIsReleasedWithoutMemory) {
  const uint64_t before = used_bytes();
  const auto op = std::make_shared<PendingOp>();
  submit(op);
  queue(0).abandon(op);
  fail();
  {
    const NoMemory none;
    ranks_[0].connection->under_way().settle_all();
  }
  EXPECT_EQ(used_bytes(), before);
  EXPECT_EQ(area().settled(0).load(), 1u);
}

TEST_F(CompletionTest, ARankLeavesWithoutMemory) {
  const auto op = std::make_shared<PendingOp>();
  submit(op);
  {
    const NoMemory none;
    ranks_[0].connection->leave();
  }
  EXPECT_TRUE(op->has_outcome);
  EXPECT_EQ(op->outcome.code(), Code::cancelled);
  drain(loop_);
  EXPECT_TRUE(ranks_[0].events.ends == 1);
  EXPECT_TRUE(ranks_[0].events.leaving);
}

// The group is freed before its operation ends.
TEST_F(CompletionTest, AFreedGroupReleasesItsMemory) {
  const uint64_t before = used_bytes();
  auto op = std::make_shared<PendingOp>();
  submit(op);
  queue(0).abandon(op);
  op.reset();
  ranks_[0].queue.reset();
  EXPECT_GT(used_bytes(), before) << "the worker may use it";
  fail();
  std::byte* more = ranks_[0].connection->own_memory().allocate(64);
  EXPECT_EQ(used_bytes(), before + 64);
  ranks_[0].connection->own_memory().free(more);
}

TEST_F(CompletionTest, SeveralThreadsMayWaitForOneOperation) {
  for (uint64_t number = 0; number < 20; ++number) {
    PendingOp a;
    PendingOp b;
    ASSERT_TRUE(ranks_[0].arrive(a, 1).ok());
    std::vector<std::thread> waiting;
    for (int i = 0; i < 3; ++i)
      waiting.emplace_back([&] { EXPECT_TRUE(queue(0).wait(a, 60'000).ok()); });
    for (int i = 0; i < 200; ++i) queue(0).poll(a);
    ASSERT_TRUE(ranks_[1].arrive(b, 1).ok());
    for (std::thread& thread : waiting) thread.join();
    ASSERT_TRUE(queue(1).poll(b));
  }
}

// The last number has a generation of its own. The next would have generation 0, that of fresh
// memory.
TEST(BoardNumbers, TheLastHasAGenerationOfItsOwn) {
  const uint64_t last = board::kNumbersMax - 1;
  EXPECT_EQ(board::generation_of(last), UINT32_MAX);
  EXPECT_EQ(board::number_of(board::generation_of(last), last % kBoardSlots), last);
  EXPECT_TRUE(
      board::is_before(board::generation_of(last - kBoardSlots), board::generation_of(last)));
  EXPECT_EQ(board::generation_of(board::kNumbersMax), 0u);
}

}  // namespace
}  // namespace tutti::client

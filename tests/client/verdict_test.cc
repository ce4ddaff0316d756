// How calls end that nobody waits for, that several wait for, or that end where memory is scarce.
#include <gmock/gmock.h>

#include "tests/client/board.h"
#include "tests/support/scarce_memory.h"

namespace tutti::client {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tutti::testing::NoMemory;

class ClientVerdictTest : public ClientBoardTest {
 protected:
  // Rank 0 asks, with a block of its own, and the worker takes it over.
  void ask(const std::shared_ptr<Ticket>& ticket) {
    std::byte* block = ranks_[0].connection->allocate(4096);
    ticket->blocks.push_back(ranks_[0].connection->offset_of(block));
    ASSERT_TRUE(ranks_[0].arrive(*ticket, 1).ok());
    session(0).set_ranks_decide(false);
    drain(loop_);
  }
  void fail() {
    session(0).complete(0, 0, unavailable("what is too long for a short string", {1, "h"}));
  }
  uint64_t used_bytes() { return ranks_[0].connection->used_bytes(); }
};

TEST_F(ClientVerdictTest, AVerdictIsTakenNoteOfWithoutMemory) {
  const auto ticket = std::make_shared<Ticket>();
  ask(ticket);
  fail();
  {
    const NoMemory none;
    EXPECT_TRUE(calls(0).done(*ticket));
  }
  EXPECT_EQ(ticket->outcome.code(), Code::unavailable);
  EXPECT_EQ(ticket->outcome.culprit().rank, 1);
  EXPECT_EQ(ticket->outcome.message(), "out of memory");
  EXPECT_EQ(area().settled(0).load(), 1u);
}

TEST_F(ClientVerdictTest, WhatNobodyWaitsForIsCollectedWithoutMemory) {
  const uint64_t before = used_bytes();
  const auto ticket = std::make_shared<Ticket>();
  ask(ticket);
  calls(0).abandon(ticket);
  fail();
  {
    const NoMemory none;
    ranks_[0].connection->settle_all();
  }
  EXPECT_EQ(used_bytes(), before);
  EXPECT_EQ(area().settled(0).load(), 1u);
}

TEST_F(ClientVerdictTest, ARankLeavesWithoutMemory) {
  const auto ticket = std::make_shared<Ticket>();
  ask(ticket);
  {
    const NoMemory none;
    ranks_[0].connection->leave();
  }
  EXPECT_TRUE(ticket->known);
  EXPECT_EQ(ticket->outcome.code(), Code::cancelled);
  drain(loop_);
  EXPECT_TRUE(ranks_[0].events.ends == 1);
  EXPECT_TRUE(ranks_[0].events.leaving);
}

// The handle of its group is gone before the operation is over.
TEST_F(ClientVerdictTest, AGroupThatIsGoneGivesItsMemoryBack) {
  const uint64_t before = used_bytes();
  auto ticket = std::make_shared<Ticket>();
  ask(ticket);
  calls(0).abandon(ticket);
  ticket.reset();
  ranks_[0].calls.reset();
  EXPECT_GT(used_bytes(), before) << "the worker may use it";
  fail();
  std::byte* more = ranks_[0].connection->allocate(64);
  EXPECT_EQ(used_bytes(), before + 64);
  ranks_[0].connection->free(more);
}

TEST_F(ClientVerdictTest, SeveralThreadsMayWaitForOneCall) {
  for (uint64_t number = 0; number < 20; ++number) {
    Ticket a;
    Ticket b;
    ASSERT_TRUE(ranks_[0].arrive(a, 1).ok());
    std::vector<std::thread> waiting;
    for (int i = 0; i < 3; ++i)
      waiting.emplace_back([&] { EXPECT_TRUE(calls(0).wait(a, 60'000).ok()); });
    for (int i = 0; i < 200; ++i) calls(0).done(a);
    ASSERT_TRUE(ranks_[1].arrive(b, 1).ok());
    for (std::thread& thread : waiting) thread.join();
    ASSERT_TRUE(calls(1).done(b));
  }
}

// The last operation has a turn of its own; the next one would have that of fresh memory.
TEST(BoardNumbers, TheLastHasATurnOfItsOwn) {
  const uint64_t last = board::kNumbersMax - 1;
  EXPECT_EQ(board::turn_of(last), UINT32_MAX);
  EXPECT_EQ(board::number_of(board::turn_of(last), last % kBoardSlots), last);
  EXPECT_TRUE(board::is_before(board::turn_of(last - kBoardSlots), board::turn_of(last)));
  EXPECT_EQ(board::turn_of(board::kNumbersMax), 0u);
}

}  // namespace
}  // namespace tutti::client

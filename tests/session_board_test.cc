// The worker's side of the board: what it takes over, in which order, what it fails and for whom.
// What it makes of garbage: tests/session_board_hostile_test.cc.
#include "tests/session_board.h"

namespace tutti {
namespace {

using testing::HasSubstr;

TEST_F(BoardTest, EveryTrainerGetsTheBoardAndAllSegments) {
  const size_t before = open_descriptors();
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(trainer(rank).descriptors(), 3u + 3u);
    EXPECT_EQ(trainer(rank).board().magic, kBoardMagic);
    EXPECT_EQ(trainer(rank).board().ranks, 3u);
    EXPECT_EQ(trainer(rank).board().in_use.load(), 1u);
  }
  // It is one and the same memory.
  trainer(2).board().figures[1].operations = 5;
  trainer(2).board().figures[1].bytes = 500;
  EXPECT_EQ(session(1).board_figures().operations, 5u);
  EXPECT_EQ(session(1).board_figures().bytes, 500u);
  EXPECT_EQ(session(0).board_figures().operations, 0u);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(BoardTest, WhatIsDivertedIsTakenFromThoseWhoArrived) {
  arrive(0, 0, 11).started_ns = ns_ago(Millis(1000));
  arrive(2, 0, 12);
  drain(loop_);
  EXPECT_TRUE(events(0).requests.empty()) << "nobody asked";
  divert(0);
  trainer(0).ring();
  drain(loop_);
  ASSERT_EQ(slots_of(0), Slots{11});
  EXPECT_EQ(slots_of(1), Slots{});
  EXPECT_EQ(slots_of(2), Slots{12});
  EXPECT_GE(events(0).requests[0].waited_ms, 1000u);
  EXPECT_LT(events(2).requests[0].waited_ms, 1000u);
  EXPECT_TRUE(is_cleared(0));
  session(0).complete(11, {});
  EXPECT_EQ(trainer(0).completion(11).state.load(), slot_word(SlotState::done));
}

TEST_F(BoardTest, TheRingIsMergedInItsOrder) {
  trainer(0).publish(all_reduce_request(1));
  arrive(0, 0, 2);
  trainer(0).publish(all_reduce_request(3));
  trainer(0).publish(all_reduce_request(4));
  arrive(0, 1, 5);
  arrive(0, 2, 6);
  trainer(0).publish(all_reduce_request(7));
  for (const uint64_t number : {2, 0, 1}) divert(number);
  trainer(0).ring();
  drain(loop_);
  EXPECT_EQ(slots_of(0), (Slots{1, 2, 3, 4, 5, 6, 7}));
}

// Rank 0 waits in both, and only the newer is diverted: the older must not come after it.
TEST_F(BoardTest, OlderOperationsGoFirst) {
  arrive(0, 0, 1);
  arrive(1, 1, 8);
  arrive(0, 1, 2);
  arrive(0, 2, 3);
  divert(1);
  trainer(1).ring();
  drain(loop_);
  EXPECT_EQ(slots_of(0), (Slots{1, 2}));
  EXPECT_EQ(slots_of(1), Slots{8});
  EXPECT_TRUE(is_cleared(0));
  EXPECT_EQ(arrived_of(slot(2).word.load()), 1u) << "a newer one still waits";
}

TEST_F(BoardTest, TheOrderHoldsWhereTurnsWrap) {
  const uint64_t wrap = uint64_t{kBoardSlots} << kTurnBits;
  wind_to(wrap - 2);
  ASSERT_EQ(turn_at(wrap), 0u);
  for (uint32_t i = 0; i < 4; ++i) arrive(0, wrap - 2 + i, 20 + i);
  divert(wrap + 1);
  trainer(0).ring();
  drain(loop_);
  EXPECT_EQ(slots_of(0), (Slots{20, 21, 22, 23}));
  EXPECT_TRUE(is_cleared(wrap - 1));
  EXPECT_EQ(turn_of(slot(wrap - 1).word.load()), 0u);
}

TEST_F(BoardTest, StagedEntriesAreLeftToTheirTrainers) {
  arrive(0, 0, 1, kBoardStaged | kBoardBlocking);
  arrive(1, 0, 2, kBoardBlocking);
  divert(0);
  trainer(0).ring();
  drain(loop_);
  EXPECT_TRUE(events(0).requests.empty());
  EXPECT_EQ(slots_of(1), Slots{2});
  EXPECT_TRUE(is_cleared(0));
}

TEST_F(BoardTest, OutOfUseTakesOverAllThatWaits) {
  arrive(0, 0, 1);
  arrive(1, 0, 2);
  arrive(1, 1, 3);
  session(2).use_board(false);
  EXPECT_EQ(board().in_use.load(), 0u);
  EXPECT_EQ(slots_of(0), Slots{1});
  EXPECT_EQ(slots_of(1), (Slots{2, 3}));
  session(2).use_board(true);
  EXPECT_EQ(board().in_use.load(), 1u);
}

// ---- Ends ----

TEST_F(BoardTest, WhatARankBroughtBeforeItsEndCounts) {
  arrive(1, 0, 1);
  arrive(0, 1, 2);
  arrive(1, 1, 3);
  trainer(1).hang_up();
  drain(loop_);
  EXPECT_EQ(slots_of(1), (Slots{1, 3}));
  EXPECT_EQ(slots_of(0), Slots{2});
  EXPECT_EQ(events(1).ends, 1);
  EXPECT_EQ(board().in_use.load(), 0u);
  session(0).use_board(true);
  EXPECT_EQ(board().in_use.load(), 0u) << "a rank is missing for good";
}

TEST_F(BoardTest, WhatADeadRankHoldsFailsWithItsName) {
  fold(0);
  slot(0).entries[1].holding = 1;
  trainer(1).hang_up();
  ASSERT_TRUE(turn_until(loop_, [&] { return is_done(0) && is_done(2); }));
  EXPECT_EQ(completion(0).code, TUTTI_UNAVAILABLE);
  EXPECT_THAT(completion(2).message, HasSubstr("rank 1 (host here, pid "));
  EXPECT_EQ(completion(0).culprit_rank, 1);
  EXPECT_STREQ(completion(0).culprit_host, "here");
  EXPECT_TRUE(is_cleared(0));
  EXPECT_EQ(blocks_of(slot(0).claimed.load()), UINT32_MAX) << "nobody claims a block any more";
}

TEST_F(BoardTest, WhatADeadRankDidNotBringFails) {
  fold(0, kBoardStaged | kBoardBlocking);
  for (uint32_t rank = 0; rank < 3; ++rank) slot(0).entries[rank].ready = rank == 1 ? 0 : 1;
  trainer(1).hang_up();
  ASSERT_TRUE(turn_until(loop_, [&] { return is_done(0) && is_done(2); }));
  EXPECT_EQ(completion(0).code, TUTTI_UNAVAILABLE);
}

TEST_F(BoardTest, TheLastToArriveMayDieBeforeItBegins) {
  fold(0);
  slot(0).claimed = slot(0).folded = board_count(UINT32_MAX, 0);
  slot(0).entries[2].holding = 1;
  trainer(2).hang_up();
  ASSERT_TRUE(turn_until(loop_, [&] { return is_done(0) && is_done(1); }));
  EXPECT_EQ(completion(0).code, TUTTI_UNAVAILABLE);
  EXPECT_THAT(completion(0).message, HasSubstr("rank 2"));
  EXPECT_EQ(session(0).board_figures().failures, 1u);
  EXPECT_EQ(session(2).board_figures().failures, 0u) << "it is gone";
}

// Outputs must not change once the failure is told.
TEST_F(BoardTest, AFailureWaitsForThoseWhoFold) {
  fold(0);
  slot(0).entries[1].holding = 1;
  slot(0).entries[2].holding = 2;
  trainer(1).hang_up();
  const TimePoint limit = Clock::now() + Millis(100);
  turn_until(loop_, [&] { return is_done(0) || Clock::now() > limit; });
  EXPECT_FALSE(is_done(0)) << "rank 2 still writes";
  slot(0).entries[2].holding = 0;
  EXPECT_TRUE(turn_until(loop_, [&] { return is_done(0) && is_done(2); }));
}

// Who died had folded the last block: those who wait see that and end it themselves.
TEST_F(BoardTest, WhatIsFoldedDoesNotFail) {
  fold(0);
  slot(0).folded = board_count(0, 1);
  slot(0).entries[1].holding = 1;
  trainer(1).hang_up();
  const TimePoint limit = Clock::now() + Millis(100);
  turn_until(loop_, [&] { return is_done(0) || Clock::now() > limit; });
  EXPECT_FALSE(is_done(0));
}

// Who folded the last block stopped before it could say so: the others say it.
TEST_F(BoardTest, WhatIsFoldedIsNotOverdue) {
  fold(0);
  slot(0).folded = board_count(0, 2);
  slot(0).entries[1].holding = 1;
  slot(0).entries[0].request.count = slot(0).entries[1].request.count = kBoardBlockBytes / 4 + 1;
  complain(0);
  drain(loop_);
  EXPECT_EQ(slot(0).overdue.load(), 0u);
  EXPECT_TRUE(events(1).stuck.empty());
  EXPECT_EQ(slot(0).claimed.load(), board_count(0, 0)) << "nobody was stopped";
}

TEST_F(BoardTest, TheLivingFinishWhatTheDeadLeftWhole) {
  fold(0);
  trainer(1).hang_up();
  drain(loop_);
  EXPECT_FALSE(is_done(0));
  EXPECT_EQ(phase_of(slot(0).word.load()), BoardPhase::folding);
}

// ---- Deadlines ----

TEST_F(BoardTest, WhoHoldsABlockPastTheDeadlineIsNamedAndTheEpochIsOver) {
  fold(0, kBoardStaged | kBoardBlocking);
  slot(0).entries[2].holding = 1;
  complain(0);
  ASSERT_TRUE(turn_until(loop_, [&] { return is_done(0) && is_done(1) && is_done(2); }));
  EXPECT_EQ(completion(0).code, TUTTI_DEADLINE_EXCEEDED);
  EXPECT_EQ(completion(1).culprit_rank, 2);
  EXPECT_THAT(completion(0).message, HasSubstr("all_reduce timed out after 5000 ms: rank 2"));
  ASSERT_EQ(events(2).stuck.size(), 1u);
  EXPECT_EQ(events(2).stuck[0].code(), Code::deadline_exceeded);
  session(0).use_board(true);
  EXPECT_EQ(board().in_use.load(), 0u) << "rank 2 may go on, and write, at any time";
  trainer(2).hang_up();
  drain(loop_);
  EXPECT_EQ(events(2).ends, 1);
}

TEST_F(BoardTest, WhoseBlocksAreMissingIsNamed) {
  fold(0, kBoardStaged | kBoardBlocking);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    slot(0).entries[rank].request.count = 1 << 20;
    slot(0).entries[rank].ready = rank == 1 ? 2 : 10;
  }
  complain(0);
  ASSERT_TRUE(turn_until(loop_, [&] { return is_done(0) && is_done(1) && is_done(2); }));
  EXPECT_EQ(completion(0).culprit_rank, 1);
}

TEST_F(BoardTest, AComplaintOfAnEarlierTurnHarmsNobody) {
  wind_to(kBoardSlots);
  fold(kBoardSlots);
  slot(kBoardSlots).entries[2].holding = 1;
  slot(kBoardSlots).overdue = board_count(0, 1);
  board().calls.fetch_add(1);
  trainer(0).ring();
  drain(loop_);
  EXPECT_FALSE(is_done(0));
  EXPECT_TRUE(events(2).stuck.empty());
}

TEST(BoardShare, MoreRanksThanABoardHasDoWithout) {
  Loop loop;
  std::vector<std::unique_ptr<Served>> served;
  std::vector<Session*> sessions;
  for (uint32_t rank = 0; rank < kBoardRanks + 1; ++rank) {
    served.push_back(std::make_unique<Served>(loop, socket_pair()));
    sessions.push_back(served.back()->session.get());
  }
  EXPECT_TRUE(share_board(loop, sessions).ok());
  sessions[0]->set_group(0, 0, kBoardRanks + 1);
  EXPECT_TRUE(sessions[0]->welcome(1, std::vector<std::string>(kBoardRanks + 1, "h")).ok());
  served[0]->trainer.join();
  EXPECT_EQ(served[0]->trainer.descriptors(), 2u);
}

TEST(BoardShare, JobsAfterEachOtherLeaveNothing) {
  struct Job : BoardTest {
    void TestBody() override {}
  };
  { Job warm; }
  const size_t before = open_descriptors();
  for (int epoch = 0; epoch < 50; ++epoch) Job();
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace tutti

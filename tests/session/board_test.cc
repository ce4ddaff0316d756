// The worker's side of the board: what it takes over, what it folds, what it fails and for whom.
// What it makes of garbage: tests/session/board_hostile_test.cc.
#include "tests/session/board.h"

#include <fcntl.h>

namespace tutti {
namespace {

using testing::HasSubstr;

TEST_F(BoardTest, EveryTrainerGetsTheBoardAndAllSegments) {
  const int before = open_descriptors();
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(trainer(rank).descriptors(), 4u + 3u);
    EXPECT_EQ(trainer(rank).board().magic, kBoardMagic);
    EXPECT_EQ(trainer(rank).board().version, kProtocolVersion);
    EXPECT_EQ(trainer(rank).board().local_ranks, 3u);
  }
  EXPECT_TRUE(ranks_decide());
  // It is one and the same memory.
  trainer(2).board().counters[1].operations = 5;
  trainer(2).board().counters[1].failures = 6;
  trainer(2).board().counters[1].bytes = 500;
  EXPECT_EQ(board_->counters(1).operations, 5u);
  EXPECT_EQ(board_->counters(1).failures, 6u);
  EXPECT_EQ(board_->counters(1).bytes, 500u);
  EXPECT_EQ(board_->counters(0).operations, 0u);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(BoardTest, TheBoardIsSealed) {
  EXPECT_NE(ftruncate(trainer(0).board_memory(), 4096), 0);
  EXPECT_EQ(fcntl(trainer(0).board_memory(), F_GET_SEALS),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

TEST_F(BoardTest, WhatIsCalledIsTakenFromThoseWhoArrived) {
  const int64_t started_ns = ns_ago(Millis(1000));
  arrive(0, 0).started_ns = started_ns;
  arrive(2, 0);
  drain(loop_);
  EXPECT_TRUE(events(0).requests.empty()) << "nobody asked";
  call(0);
  drain(loop_);
  ASSERT_EQ(taken_of(0), Numbers{0});
  EXPECT_EQ(taken_of(1), Numbers{});
  EXPECT_EQ(taken_of(2), Numbers{0});
  EXPECT_EQ(events(0).requests[0].started, TimePoint(std::chrono::nanoseconds(started_ns)));
  EXPECT_GT(events(2).requests[0].started, events(0).requests[0].started);
  board_->complete({0, 0}, {});
  EXPECT_TRUE(trainer(1).is_done(0));
}

TEST_F(BoardTest, ARankWaitsForTheWorkerFromItsSleepToTheEndOfTheOperation) {
  for (const uint64_t number : {0, 1}) arrive(0, number);
  for (const uint64_t number : {0, 1}) call(number);
  drain(loop_);
  EXPECT_FALSE(board_->is_waited_for()) << "its caller computes";
  for (const int time : {1, 2}) {
    SCOPED_TRACE(time);
    slot(1).word = board::pack(board::with_sleeper(word(1)));
    call(1);
    drain(loop_);
    EXPECT_TRUE(board_->is_waited_for());
  }
  board_->complete({0, 0}, {});
  EXPECT_TRUE(board_->is_waited_for());
  board_->complete({0, 1}, unavailable("because"));
  EXPECT_FALSE(board_->is_waited_for());
}

// A rank that waits for its second call first: the first has no start of its own.
TEST_F(BoardTest, ACallWithoutAStartHasThatOfTheLaterOneThatIsWaitedFor) {
  arrive(0, 0).started_ns = 0;
  arrive(0, 1).started_ns = ns_ago(Millis(50));
  call(1);
  drain(loop_);
  ASSERT_EQ(taken_of(0), (Numbers{0, 1}));
  EXPECT_TRUE(events(0).requests[0].started.has_value());
  EXPECT_EQ(events(0).requests[0].started, events(0).requests[1].started);
}

// The entry of the later one still holds an operation of long ago.
TEST_F(BoardTest, ACallWithoutAStartHasNotThatOfAnOperationBefore) {
  arrive(0, 0).started_ns = 0;
  entry(1, 0).started_ns = ns_ago(Millis(3'600'000));
  arrive(1, 1);
  call(1);
  drain(loop_);
  ASSERT_EQ(taken_of(0), Numbers{0});
  EXPECT_EQ(events(0).requests[0].started, std::nullopt);
}

// All ranks call repeatedly: each request is forwarded once, and a later arrival later.
TEST_F(BoardTest, ARequestComesOnce) {
  arrive(0, 0);
  for (int i = 0; i < 5; ++i) {
    call(0);
    drain(loop_);
  }
  arrive(1, 0);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    trainer(rank).call(0);
    drain(loop_);
  }
  EXPECT_EQ(taken_of(0), Numbers{0});
  EXPECT_EQ(taken_of(1), Numbers{0});
  EXPECT_EQ(taken_of(2), Numbers{});
}

TEST_F(BoardTest, CalledOperationsComeInTheirOrder) {
  const Numbers all = {254, 255, 256, 257, 258};  // Their slots lie otherwise.
  for (const uint64_t number : {258, 255, 257, 254, 256}) {
    arrive(0, number);
    trainer(0).set_word(number, Phase::called, 1);
    trainer(0).set_called(number);
  }
  trainer(0).ring();
  drain(loop_);
  EXPECT_EQ(taken_of(0), all);
}

// Operations that no rank called stay with the ranks: those newer than the called one.
TEST_F(BoardTest, WhatIsNotCalledIsTheRanks) {
  arrive(0, 0);
  arrive(1, 0);
  arrive(0, 1);
  call(0);
  drain(loop_);
  EXPECT_EQ(taken_of(0), Numbers{0});
  EXPECT_EQ(taken_of(1), Numbers{0});
  EXPECT_EQ(word(1), (board::SlotWord{1, Phase::open, false, 1}));
}

// Rank 0 waits in both, and only the newer is called: the older must not come after it.
TEST_F(BoardTest, OlderOperationsGoFirst) {
  arrive(0, 0);
  arrive(0, 1);
  arrive(0, 2);
  call(1);
  drain(loop_);
  EXPECT_EQ(taken_of(0), (Numbers{0, 1}));
  EXPECT_EQ(word(0).phase, Phase::called);
  EXPECT_EQ(word(2), (board::SlotWord{1, Phase::open, false, 1})) << "a newer one still waits";
}

// An arrival at another call of that slot: the rank has not come, or it has gone on.
TEST_F(BoardTest, ArrivalsOfOtherGenerationsAreNotTaken) {
  arrive(0, 5);
  arrive(1, 5).arrived = 5 + kBoardSlots + 1;
  arrive(2, 5).arrived = 0;
  call(5);
  drain(loop_);
  EXPECT_EQ(taken_of(0), Numbers{5});
  EXPECT_EQ(taken_of(1), Numbers{});
  EXPECT_EQ(taken_of(2), Numbers{});
}

TEST_F(BoardTest, RanksThatDoNotDecideHandOverWhatWaits) {
  arrive(0, 0);
  arrive(1, 0);
  arrive(1, 1);
  board_->set_ranks_decide(false);
  EXPECT_FALSE(ranks_decide());
  drain(loop_);
  EXPECT_EQ(taken_of(0), Numbers{0});
  EXPECT_EQ(taken_of(1), (Numbers{0, 1}));
  EXPECT_EQ(word(0).phase, Phase::called);
  board_->set_ranks_decide(true);
  EXPECT_TRUE(ranks_decide());
}

// ---- Ends ----

TEST_F(BoardTest, WhatARankBroughtBeforeItsEndCounts) {
  arrive(1, 0);
  arrive(0, 0);
  arrive(1, 1);
  trainer(1).hang_up();
  ASSERT_TRUE(await(loop_, [&] { return events(1).ends == 1; }));
  EXPECT_EQ(taken_of(1), (Numbers{0, 1}));
  EXPECT_EQ(taken_of(0), Numbers{0});
  EXPECT_FALSE(ranks_decide());
  board_->set_ranks_decide(true);
  EXPECT_FALSE(ranks_decide()) << "a rank is missing for good";
}

// Slots do not wait for a dead rank to settle.
TEST_F(BoardTest, AGoneRankHasSettledAll) {
  trainer(1).hang_up();
  ASSERT_TRUE(await(loop_, [&] { return events(1).ends == 1; }));
  EXPECT_EQ(trainer(0).area().settled(1).load(), UINT64_MAX);
  EXPECT_EQ(trainer(0).area().settled(0).load(), 0u);
}

TEST_F(BoardTest, WhatADeadRankHoldsFailsWithItsName) {
  begin_folding(0);
  entry(0, 1).holding = 1;
  trainer(1).hang_up();
  ASSERT_TRUE(turn_until_over(0));
  for (const uint32_t rank : {0, 2}) {
    ASSERT_TRUE(trainer(rank).has_failed(0));
    EXPECT_EQ(trainer(rank).failure(0).code, TUTTI_UNAVAILABLE);
    EXPECT_THAT(trainer(rank).failure(0).message, HasSubstr("rank 1 (host here, pid "));
    EXPECT_EQ(trainer(rank).failure(0).culprit_rank, 1);
    EXPECT_STREQ(trainer(rank).failure(0).culprit_host, "here");
  }
  EXPECT_EQ(board_->recorder()->failure().status.culprit(), (Culprit{1, "here"}))
      << "the worker reports it";
  EXPECT_EQ(board::unpack_count(slot(0).claimed.load()), (board::Count{1, board::kNoMoreBlocks}))
      << "nobody claims a block any more";
}

TEST_F(BoardTest, WhatADeadRankDidNotBringFails) {
  begin_folding(0, 2, kRequestStaged | kRequestBlocking);
  for (uint32_t rank = 0; rank < 3; ++rank) entry(0, rank).ready = rank == 1 ? 1 : 2;
  trainer(1).hang_up();
  ASSERT_TRUE(turn_until_over(0));
  EXPECT_EQ(failure(0).code, TUTTI_UNAVAILABLE);
  EXPECT_EQ(failure(0).culprit_rank, 1);
}

// It counted itself, and all fold, but did not come to open the blocks.
TEST_F(BoardTest, TheLastToArriveMayDieBeforeItBegins) {
  begin_folding(0);
  slot(0).claimed = 0;
  entry(0, 2).holding = 1;
  trainer(2).hang_up();
  ASSERT_TRUE(turn_until_over(0));
  EXPECT_EQ(failure(0).code, TUTTI_UNAVAILABLE);
  EXPECT_THAT(failure(0).message, HasSubstr("rank 2"));
}

// Outputs must not change once the failure is notified.
TEST_F(BoardTest, AFailureWaitsForThoseWhoFold) {
  begin_folding(0, 2);
  entry(0, 1).holding = 1;
  entry(0, 2).holding = 2;
  trainer(1).hang_up();
  turn_for(Millis(100));
  EXPECT_EQ(events(1).ends, 1);
  EXPECT_FALSE(is_over(0)) << "rank 2 still writes";
  entry(0, 2).holding = 0;
  ASSERT_TRUE(turn_until_over(0));
  EXPECT_EQ(failure(0).culprit_rank, 1);
}

// The rank that died had folded the last block: the operation completes.
TEST_F(BoardTest, WhatIsFoldedDoesNotFail) {
  begin_folding(0);
  set_folded(0, 1);
  entry(0, 1).holding = 1;
  trainer(1).hang_up();
  ASSERT_TRUE(turn_until_over(0));
  EXPECT_TRUE(trainer(0).is_done(0));
}

// The rank that folded the last block stopped before it ended the operation: another rank ends it.
TEST_F(BoardTest, WhatIsFoldedIsNotOverdue) {
  begin_folding(0, 2);
  set_folded(0, 2);
  entry(0, 1).holding = 1;
  start_ago(0, Millis(6000));
  call(0);
  drain(loop_);
  EXPECT_TRUE(told_.stuck.empty());
  EXPECT_FALSE(trainer(0).has_failed(0));
  EXPECT_EQ(board::unpack_count(slot(0).claimed.load()), (board::Count{1, 0}))
      << "nobody was stopped";
}

TEST_F(BoardTest, TheLivingFinishWhatTheDeadLeftWhole) {
  begin_folding(0);
  trainer(1).hang_up();
  ASSERT_TRUE(await(loop_, [&] { return events(1).ends == 1; }));
  turn_for(Millis(50));
  EXPECT_EQ(word(0).phase, Phase::folding);
  EXPECT_EQ(board::unpack_count(slot(0).claimed.load()), (board::Count{1, 0}));
}

// The rank's request came before its death, the others' after it; the rest of its tensor never
// comes.
TEST_F(BoardTest, WhatIsFoldedAfterADeathFailsWhereTheDeadMustBring) {
  for (uint32_t rank = 0; rank < 3; ++rank) arrive(rank, 0, kRequestStaged | kRequestBlocking);
  call(0);
  trainer(1).hang_up();
  ASSERT_TRUE(await(loop_, [&] { return events(1).ends == 1; }));
  turn_for(Millis(50));
  ASSERT_TRUE(board_->let_ranks_fold({0, 0}));
  ASSERT_TRUE(turn_until_over(0));
  ASSERT_TRUE(trainer(0).has_failed(0));
  EXPECT_EQ(failure(0).culprit_rank, 1);
}

// ---- Deadlines ----

TEST_F(BoardTest, WhoHoldsABlockPastTheDeadlineIsNamedAndTheEpochIsOver) {
  begin_folding(0);
  entry(0, 2).holding = 1;
  call(0);
  drain(loop_);
  EXPECT_FALSE(is_over(0)) << "there is time left";
  start_ago(0, Millis(5001));
  call(0);
  drain(loop_);
  ASSERT_TRUE(is_over(0)) << "nobody else folds: at once";
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(trainer(rank).has_failed(0));
    EXPECT_EQ(trainer(rank).failure(0).code, TUTTI_DEADLINE_EXCEEDED);
    EXPECT_EQ(trainer(rank).failure(0).culprit_rank, 2);
    EXPECT_STREQ(trainer(rank).failure(0).culprit_host, "here");
    EXPECT_THAT(trainer(rank).failure(0).message,
                HasSubstr("all_reduce #0 timed out after 5000 ms: rank 2 (host here, pid "));
  }
  EXPECT_EQ(board_->recorder()->failure().status.culprit(), (Culprit{2, "here"}))
      << "the worker reports it";
  ASSERT_EQ(told_.stuck.size(), 1u);
  EXPECT_EQ(told_.stuck[0].code(), Code::deadline_exceeded);
  EXPECT_EQ(told_.stuck[0].culprit(), (Culprit{2, "here"}));
  board_->set_ranks_decide(true);
  EXPECT_FALSE(ranks_decide()) << "rank 2 may go on, and write, at any time";
  trainer(2).hang_up();
  ASSERT_TRUE(await(loop_, [&] { return events(2).ends == 1; }));
  EXPECT_EQ(failure(0).code, TUTTI_DEADLINE_EXCEEDED) << "the verdict stays";
}

// Others that fold are waited for, but not longer than they may take.
TEST_F(BoardTest, WhoFoldsPastTheDeadlineIsWaitedForAWhile) {
  begin_folding(0, 3);
  entry(0, 2).holding = 1;
  entry(0, 1).holding = 2;
  start_ago(0, Millis(5001));
  const TimePoint called = Clock::now();
  call(0);
  drain(loop_);
  EXPECT_FALSE(is_over(0)) << "rank 1 still writes";
  EXPECT_EQ(board::unpack_count(slot(0).claimed.load()).blocks, board::kNoMoreBlocks);
  ASSERT_TRUE(turn_until_over(0));
  EXPECT_GE(Clock::now() - called, Millis(300));
  EXPECT_EQ(failure(0).culprit_rank, 2) << "it holds the first block";
}

// One verdict: that of the death came first, and some have read it.
TEST_F(BoardTest, AnEarlierVerdictIsNotOverwritten) {
  begin_folding(0, 3);
  for (uint32_t rank = 0; rank < 3; ++rank) entry(0, rank).holding = rank + 1;
  trainer(1).hang_up();
  ASSERT_TRUE(await(loop_, [&] { return events(1).ends == 1; }));
  start_ago(0, Millis(5001));
  call(0);
  drain(loop_);
  ASSERT_FALSE(is_over(0));
  entry(0, 0).holding = entry(0, 2).holding = 0;
  ASSERT_TRUE(turn_until_over(0));
  turn_for(Millis(400));
  EXPECT_EQ(failure(0).code, TUTTI_UNAVAILABLE);
  EXPECT_EQ(failure(0).culprit_rank, 1);
  EXPECT_TRUE(told_.stuck.empty());
}

TEST_F(BoardTest, WhoseBlocksAreMissingIsNamed) {
  begin_folding(0, 10, kRequestStaged | kRequestBlocking);
  for (uint32_t rank = 0; rank < 3; ++rank) entry(0, rank).ready = rank == 1 ? 2 : 10;
  start_ago(0, Millis(5001));
  call(0);
  ASSERT_TRUE(turn_until_over(0));
  EXPECT_EQ(failure(0).code, TUTTI_DEADLINE_EXCEEDED);
  EXPECT_EQ(failure(0).culprit_rank, 1);
  EXPECT_EQ(told_.stuck.size(), 1u);
}

TEST_F(BoardTest, ACallOfAnEarlierTurnHarmsNobody) {
  begin_folding(kBoardSlots);
  entry(kBoardSlots, 2).holding = 1;
  call(0);  // The slot has gone on.
  drain(loop_);
  EXPECT_EQ(word(kBoardSlots), (board::SlotWord{2, Phase::folding, false, 3}));
  for (uint32_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(events(rank).requests.empty());
  EXPECT_TRUE(told_.stuck.empty());
}

// ---- Verdicts ----

// Late ranks read the same failure, until all have settled.
TEST_F(BoardTest, WhoComesLateReadsTheSameVerdict) {
  arrive(0, 0);
  arrive(1, 0).request.collective = 200;
  call(0);
  drain(loop_);
  ASSERT_EQ(taken_of(1), Numbers{0});
  const Status invalid = events(1).requests[0].invalid;
  EXPECT_THAT(invalid.message(), HasSubstr("unknown collective 200"));
  board_->complete({0, 0}, invalid);
  const BoardFailure first = failure(0);
  EXPECT_EQ(first.culprit_rank, 1);
  trainer(2).write(0, request_of(0), 2);
  trainer(2).call(0);
  board_->complete({0, 0}, unavailable("another reason", {2, "here"}));
  drain(loop_);
  EXPECT_TRUE(events(2).requests.empty()) << "it is over";
  EXPECT_EQ(std::memcmp(&first, &failure(0), sizeof(first)), 0);
  EXPECT_TRUE(trainer(2).has_failed(0));
}

// A rank that writes an unknown collective and is gone at once: its request counts, by its name.
TEST_F(BoardTest, AnUnknownVerbOfARankThatExitsIsThatRanks) {
  arrive(0, 0);
  arrive(1, 0).request.collective = 200;
  trainer(1).hang_up();
  ASSERT_TRUE(await(loop_, [&] { return events(1).ends == 1; }));
  ASSERT_EQ(taken_of(1), Numbers{0});
  const Call& op = events(1).requests[0];
  EXPECT_EQ(op.invalid.code(), Code::invalid_argument);
  EXPECT_EQ(op.invalid.culprit(), (Culprit{1, "here"}));
  EXPECT_THAT(op.invalid.message(), HasSubstr("rank 1 (host here, pid "));
  board_->complete({0, 0}, op.invalid);
  EXPECT_EQ(failure(0).culprit_rank, 1);
  trainer(2).write(0, request_of(0), 2);  // Late, and told the same.
  arrive(0, 1);
  arrive(2, 1);
  call(1);
  drain(loop_);
  EXPECT_EQ(taken_of(0), (Numbers{0, 1}));
  EXPECT_EQ(taken_of(2), Numbers{1});
}

// ---- Folding ----

class FoldTest : public BoardTest {
 protected:
  static constexpr uint64_t kCount = 20 * kBoardBlockBytes / sizeof(float) + 5;  // 21 blocks.
  FoldTest() : BoardTest(3, uint64_t{8} << 20) {}

  void call_all(uint8_t flags) {
    for (uint32_t rank = 0; rank < 3; ++rank) arrive(rank, 0, fill_all_reduce(rank, kCount, flags));
    call(0);
    drain(loop_);
  }
};

TEST_F(FoldTest, WhatIsWaitedForGoesBackToTheRanks) {
  call_all(kRequestBlocking);
  ASSERT_TRUE(board_->let_ranks_fold({0, 0}));
  drain(loop_);
  EXPECT_EQ(word(0), (board::SlotWord{1, Phase::folding, false, 3}));
  EXPECT_EQ(slot(0).blocks.load(), pack(board::Count{1, 21}));
  EXPECT_EQ(slot(0).claimed.load(), pack(board::Count{1, 0}));
  EXPECT_EQ(slot(0).folded.load(), pack(board::Count{1, 0}));
  EXPECT_FALSE(board_->let_ranks_fold({0, 0})) << "once";
}

// In small pieces: it must hear of others meanwhile.
TEST_F(FoldTest, WhatNobodyWaitsForTheWorkerFolds) {
  call_all(0);
  ASSERT_TRUE(board_->let_ranks_fold({0, 0}));
  EXPECT_FALSE(is_over(0)) << "all in one go";
  arrive(0, 1);
  call(1);
  loop_.run_once(Clock::now());
  EXPECT_EQ(taken_of(0), (Numbers{0, 1}));
  EXPECT_FALSE(is_over(0)) << "all in one go";
  ASSERT_TRUE(turn_until_over(0));
  EXPECT_TRUE(trainer(0).is_done(0));
  expect_sums(kCount);
}

// Ranks began it, and went on to something else.
TEST_F(FoldTest, WhatIsFoldingAndCalledTheWorkerFolds) {
  for (uint32_t rank = 0; rank < 3; ++rank) arrive(rank, 0, fill_all_reduce(rank, kCount, 0));
  slot(0).blocks = pack(board::Count{1, 21});
  slot(0).folded = slot(0).claimed = pack(board::Count{1, 0});
  trainer(0).set_word(0, Phase::folding, 3);
  for (int i = 0; i < 3; ++i) call(0);
  ASSERT_TRUE(turn_until_over(0));
  EXPECT_TRUE(trainer(0).is_done(0));
  EXPECT_TRUE(events(0).requests.empty());
  expect_sums(kCount);
}

TEST_F(FoldTest, WhatIsNotCalledOrNotAgreedIsNotFolded) {
  EXPECT_FALSE(board_->let_ranks_fold({0, 0})) << "nobody came";
  EXPECT_FALSE(board_->let_ranks_fold({9, 0})) << "no such group";
  arrive(0, 0, fill_all_reduce(0, 8, 0));
  arrive(1, 0, fill_all_reduce(1, 8, 0));
  arrive(2, 0, fill_all_reduce(2, 9, 0));
  EXPECT_FALSE(board_->let_ranks_fold({0, 0})) << "not called";
  call(0);
  drain(loop_);
  EXPECT_FALSE(board_->let_ranks_fold({0, 0})) << "they disagree";
  EXPECT_FALSE(board_->let_ranks_fold({0, kBoardSlots})) << "another generation";
  EXPECT_EQ(word(0).phase, Phase::called);
}

TEST_F(FoldTest, WhatIsEmptyIsDoneAtOnce) {
  for (uint32_t rank = 0; rank < 3; ++rank) {
    Request barrier = request_of(0);
    barrier.collective = TUTTI_BARRIER;
    arrive(rank, 0, barrier);
  }
  call(0);
  drain(loop_);
  ASSERT_TRUE(board_->let_ranks_fold({0, 0}));
  EXPECT_TRUE(trainer(0).is_done(0));
}

// ---- Many ranks ----

class ManyRanksTest : public BoardTest {
 protected:
  ManyRanksTest() : BoardTest(100) {}
};

TEST_F(ManyRanksTest, AHundredRanksFoldOnOneHost) {
  constexpr uint64_t kCount = kBoardBlockBytes / sizeof(float) + 3;
  for (uint32_t rank = 0; rank < 100; ++rank) arrive(rank, 0, fill_all_reduce(rank, kCount, 0));
  EXPECT_EQ(word(0).arrived, 100u);
  call(0);
  drain(loop_);
  for (uint32_t rank = 0; rank < 100; ++rank) ASSERT_EQ(taken_of(rank), Numbers{0}) << rank;
  ASSERT_TRUE(board_->let_ranks_fold({0, 0}));
  ASSERT_TRUE(turn_until_over(0));
  EXPECT_TRUE(trainer(99).is_done(0));
  expect_sums(kCount);
  begin_folding(1);
  entry(1, 77).holding = 1;
  trainer(77).hang_up();
  ASSERT_TRUE(turn_until_over(1));
  EXPECT_EQ(failure(1).culprit_rank, 77);
}

TEST(BoardShare, MoreRanksThanABoardHoldsAreRefusedByName) {
  Loop loop;
  Served served(loop, socket_pair());
  HostRanks here{"h", {}, kLocalRanksMax + 1};
  for (uint32_t rank = 0; rank < kLocalRanksMax + 1; ++rank) here.ranks.push_back({rank, getpid()});
  const BoardOptions sizes{kTestSegmentBytes};
  const Status refused = HostBoard::make(loop, here, sizes, 1, served.events).status();
  EXPECT_EQ(refused.code(), Code::resource_exhausted);
  EXPECT_THAT(refused.message(), HasSubstr("at most 240 ranks on one host, not 241"));
  here.ranks.pop_back();
  here.world_size = kLocalRanksMax;
  const auto made = HostBoard::make(loop, here, sizes, 1, served.events);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const std::vector<std::string> hosts(kLocalRanksMax, "h");
  EXPECT_TRUE(served.at_worker->welcome(*made, 0, 1, hosts).ok());
  served.trainer.join();
  EXPECT_EQ(served.trainer.descriptors(), kWelcomeDescriptors);
}

TEST(BoardShare, JobsAfterEachOtherLeaveNothing) {
  struct Job : BoardTest {
    void TestBody() override {}
  };
  { Job warm; }
  const int before = open_descriptors();
  for (int epoch = 0; epoch < 50; ++epoch) Job();
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace tutti

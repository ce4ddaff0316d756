// OpQueue against the board, one step at a time: arrivals, folding, completion, and the deaths of
// ranks in between. The worker's side is a real board.
#include "tests/client/two_ranks.h"

namespace tutti::client {
namespace {

using ::testing::HasSubstr;

TEST_F(TwoRanksTest, TheLastToArriveFoldsForAll) {
  for (uint64_t number = 0; number < 3 * kBoardSlots; ++number) {
    const auto value = static_cast<float>(number);
    PendingOp first;
    PendingOp last;
    ASSERT_TRUE(ranks_[number % 2].arrive(first, value).ok());
    ASSERT_EQ(first.number, number);
    ASSERT_EQ(word(number), (board::SlotWord{board::generation_of(number), Phase::open, false, 1}));
    ASSERT_TRUE(ranks_[(number + 1) % 2].arrive(last, 1).ok());
    ASSERT_EQ(word(number), (board::SlotWord{board::generation_of(number), Phase::done, false, 2}));
    ASSERT_EQ(*ranks_[0].out, value + 1);
    ASSERT_EQ(*ranks_[1].out, value + 1);
    ASSERT_TRUE(queue(number % 2).poll(first) && queue((number + 1) % 2).poll(last));
    ASSERT_TRUE(first.outcome.ok() && last.outcome.ok());
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(area().entry(number, rank).holding.load(), 0u);
      ASSERT_EQ(area().settled(rank).load(), number + 1);
    }
  }
  drain(loop_);
  EXPECT_TRUE(ranks_[0].events.requests.empty()) << "the worker had no part in it";
}

TEST_F(TwoRanksTest, AnArrivalAtACalledOperationGoesToTheWorker) {
  PendingOp a;
  PendingOp b;
  ASSERT_TRUE(ranks_[0].arrive(a, 1).ok());
  board_->set_ranks_decide(false);  // Calls the worker for ranks that have arrived.
  board_->set_ranks_decide(true);
  EXPECT_EQ(word(0).phase, Phase::called);
  drain(loop_);
  EXPECT_EQ(requests_of(0), std::vector<uint64_t>{0});
  ASSERT_TRUE(ranks_[1].arrive(b, 1).ok());
  EXPECT_EQ(word(0), (board::SlotWord{1, Phase::called, false, 2}));
  drain(loop_);
  EXPECT_EQ(requests_of(1), std::vector<uint64_t>{0});
  board_->complete({0, 0}, unavailable("because", {1, "h"}));
  EXPECT_TRUE(queue(0).poll(a) && queue(1).poll(b));
  for (const PendingOp* op : {&a, &b}) {
    EXPECT_EQ(op->outcome.code(), Code::unavailable);
    EXPECT_EQ(op->outcome.message(), "because");
    EXPECT_EQ(op->outcome.culprit().rank, 1);
    EXPECT_EQ(op->outcome.culprit().host, "h");
  }
}

// The worker shares the core of a rank that sleeps, and is notified of it, whatever the call was.
TEST_F(TwoRanksTest, TheWorkerHearsOfARankThatSleeps) {
  board_->set_ranks_decide(false);
  ranks_[0].connection->cores().spare = false;
  for (const uint8_t flags : {uint8_t{0}, kRequestBlocking}) {
    PendingOp op;
    ASSERT_TRUE(ranks_[0].arrive(op, 1, 1, flags).ok());
    ASSERT_TRUE(await(loop_, [&] { return requests_of(0).size() == op.number + 1; }));
    EXPECT_FALSE(board_->is_waited_for()) << "its caller computes";
    op.clock.next_call = TimePoint::max();  // It does not call because others are late.
    std::thread waiter([&] { EXPECT_EQ(queue(0).wait(op, -1).message(), "because"); });
    EXPECT_TRUE(await(loop_, [&] { return board_->is_waited_for(); }));
    board_->complete({0, op.number}, unavailable("because"));
    EXPECT_FALSE(board_->is_waited_for());
    waiter.join();
  }
}

TEST_F(TwoRanksTest, ALateArrivalGetsTheFailure) {
  PendingOp a;
  PendingOp b;
  ASSERT_TRUE(ranks_[0].arrive(a, 1).ok());
  board_->set_ranks_decide(false);
  drain(loop_);
  board_->complete({0, 0}, unavailable("because", {1, "h"}));
  ASSERT_TRUE(ranks_[1].arrive(b, 1).ok());
  ASSERT_TRUE(queue(1).poll(b) && queue(0).poll(a));
  EXPECT_EQ(b.outcome.message(), "because");
  EXPECT_EQ(a.outcome.message(), "because");
  drain(loop_);
  EXPECT_EQ(requests_of(1), std::vector<uint64_t>{});
}

TEST_F(TwoRanksTest, RanksThatMayNotDecideDoNotFold) {
  board_->set_ranks_decide(false);
  PendingOp a;
  PendingOp b;
  ASSERT_TRUE(ranks_[0].arrive(a, 1).ok());
  ASSERT_TRUE(ranks_[1].arrive(b, 2).ok());
  EXPECT_EQ(word(0), (board::SlotWord{1, Phase::called, false, 2}));
  EXPECT_FALSE(queue(0).fold_blocks(0));
  drain(loop_);
  EXPECT_EQ(requests_of(0), std::vector<uint64_t>{0});
  EXPECT_EQ(requests_of(1), std::vector<uint64_t>{0});
  ASSERT_TRUE(board_->let_ranks_fold({0, 0}));  // The worker permits it.
  EXPECT_TRUE(queue(1).wait(b, 30'000).ok());
  EXPECT_TRUE(queue(0).poll(a));
  EXPECT_EQ(*ranks_[0].out, 3);
  EXPECT_EQ(*ranks_[1].out, 3);
}

TEST_F(TwoRanksTest, ADisagreementGoesToTheWorker) {
  PendingOp a;
  PendingOp b;
  ASSERT_TRUE(ranks_[0].arrive(a, 1, 2).ok());
  ASSERT_TRUE(ranks_[1].arrive(b, 1, 1).ok());
  EXPECT_EQ(word(0), (board::SlotWord{1, Phase::called, false, 2}));
  drain(loop_);
  EXPECT_EQ(requests_of(0), std::vector<uint64_t>{0});
  EXPECT_EQ(requests_of(1), std::vector<uint64_t>{0});
  EXPECT_EQ(area().entry(0, 1).holding.load(), 0u);
}

TEST_F(TwoRanksTest, ARankMayBeAheadByAllSlots) {
  std::vector<std::unique_ptr<PendingOp>> ops;
  for (uint32_t i = 0; i < kBoardSlots; ++i) {
    ops.push_back(std::make_unique<PendingOp>());
    ASSERT_TRUE(ranks_[0].arrive(*ops.back(), 1).ok());
  }
  PendingOp more;
  std::thread ahead([&] { EXPECT_TRUE(ranks_[0].arrive(more, 1).ok()); });
  PendingOp other;
  ASSERT_TRUE(ranks_[1].arrive(other, 1).ok());
  while (!queue(1).poll(other)) {
  }
  ahead.join();
  EXPECT_EQ(more.number, kBoardSlots) << "operation 0 is settled by both";
}

// A rank that does not read its outcomes keeps the slots in use. The other rank waits for a slot
// until its timeout; its call keeps its place in the order.
TEST_F(TwoRanksTest, ARankThatDoesNotSettleIsNamed) {
  std::vector<std::unique_ptr<PendingOp>> ops;
  for (uint32_t i = 0; i < kBoardSlots; ++i) {
    ops.push_back(std::make_unique<PendingOp>());
    ASSERT_TRUE(ranks_[1].arrive(*ops.back(), 1).ok());
    PendingOp own;
    ASSERT_TRUE(ranks_[0].arrive(own, 1).ok());
    ASSERT_TRUE(queue(0).poll(own));
  }
  PendingOp more;
  ranks_[0].timeout_ms = 50;
  const Status full = ranks_[0].arrive(more, 1);
  EXPECT_EQ(full.code(), Code::deadline_exceeded);
  EXPECT_THAT(full.message(), HasSubstr("rank 1 (host h) has not ended the first of them"));
  EXPECT_EQ(full.culprit(), (Culprit{1, "h"}));
  const auto refused = std::make_shared<PendingOp>();
  queue(0).keep_place({.flags = kRequestRefused | kRequestBlocking, .timeout_ms = 50}, refused);
  EXPECT_FALSE(refused->has_arrived);
  for (const auto& op : ops) EXPECT_TRUE(queue(1).poll(*op));
  ASSERT_TRUE(ranks_[0].arrive(more, 1).ok());
  EXPECT_EQ(refused->number, kBoardSlots);
  EXPECT_EQ(more.number, kBoardSlots + 1);
}

// A worker without a core looks now and then, and ranks that wait call it again at once.
TEST_F(TwoRanksTest, AWorkerThatLooksIsWaitedForHoweverOftenItIsCalled) {
  PendingOp a;
  ranks_[0].timeout_ms = 1;
  ASSERT_TRUE(ranks_[0].arrive(a, 1).ok());
  std::atomic<bool> ends = false;
  std::thread busy([&] {
    auto& header = ranks_[0].connection->memory().view().header();
    while (!ends) {
      header.looks.fetch_add(1);
      area().header().called[0].fetch_or(1);
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(queue(0).wait(a, kAnswerGrace.count() + 550).code(), Code::deadline_exceeded);
  EXPECT_FALSE(a.has_outcome) << a.outcome.message();
  EXPECT_EQ(queue(0).wait(a, -1).code(), Code::deadline_exceeded);
  EXPECT_FALSE(ranks_[0].connection->usable().ok()) << "not for ever";
  ends = true;
  busy.join();
}

// A rank may be kept off its core for longer than a worker may be silent.
TEST_F(TwoRanksTest, ARankThatWasOffItsCoreListensBeforeItGivesUp) {
  PendingOp a;
  ranks_[0].timeout_ms = 1;
  ASSERT_TRUE(ranks_[0].arrive(a, 1).ok());
  EXPECT_FALSE(queue(0).poll(a));
  const auto sleep_through = [&](bool has_heard) {
    a.clock.started = Clock::now() - kAnswerGrace - Millis(150);
    a.clock.heard = has_heard ? a.clock.deadline() : TimePoint();
  };
  sleep_through(false);
  EXPECT_FALSE(queue(0).poll(a)) << a.outcome.message();
  sleep_through(true);
  ranks_[0].connection->memory().view().header().looks.fetch_add(1);
  EXPECT_FALSE(queue(0).poll(a)) << a.outcome.message();
  sleep_through(true);
  EXPECT_TRUE(queue(0).poll(a)) << "the worker has not looked again";
  EXPECT_FALSE(ranks_[0].connection->usable().ok());
}

TEST_F(TwoRanksTest, RefusedCallsThatWaitForASlotAreBounded) {
  std::vector<std::unique_ptr<PendingOp>> ops;
  for (uint32_t i = 0; i < kBoardSlots; ++i) {
    ops.push_back(std::make_unique<PendingOp>());
    ASSERT_TRUE(ranks_[0].arrive(*ops.back(), 1).ok());
  }
  const Request refused{.flags = kRequestRefused, .timeout_ms = 60'000};
  for (size_t i = 0; i < kOwedMax; ++i) {
    queue(0).keep_place(refused, std::make_shared<PendingOp>());
    ASSERT_TRUE(ranks_[0].connection->usable().ok());
  }
  queue(0).keep_place(refused, std::make_shared<PendingOp>());
  EXPECT_EQ(ranks_[0].connection->usable().code(), Code::resource_exhausted);
  for (const auto& op : ops) queue(0).detach(*op);
}

// ---- Ranks that die or stop while they fold ----

TEST_F(TwoRanksTest, BlocksThatADeadRankFoldedCount) {
  PendingOp a;
  PendingOp b;
  begin_folding(a, b);
  set_folded(0, kBlocks);
  area().entry(0, 1).holding = kBlocks;  // It died before it ended the operation.
  EXPECT_TRUE(queue(0).poll(a));
  EXPECT_TRUE(a.outcome.ok()) << a.outcome.message();
  EXPECT_EQ(word(0).phase, Phase::done);
}

TEST_F(TwoRanksTest, AnUnfoldedBlockPreventsCompletion) {
  PendingOp a;
  PendingOp b;
  begin_folding(a, b);
  set_folded(0, kBlocks - 1);
  EXPECT_FALSE(queue(0).poll(a)) << "a block is missing";
  slot(0).folded = pack(board::Count{2, kBlocks});
  EXPECT_FALSE(queue(0).poll(a)) << "of another generation";
  EXPECT_EQ(word(0).phase, Phase::folding);
  set_folded(0, kBlocks);
  BoardFailure& why = area().failure(0);
  why.number = 0;
  why.code = TUTTI_UNAVAILABLE;
  slot(0).word = pack(board::SlotWord{1, Phase::failed, false, 2});
  EXPECT_TRUE(queue(0).poll(a) && queue(1).poll(b));
  EXPECT_EQ(a.outcome.code(), Code::unavailable) << "the worker's failure stays";
  EXPECT_EQ(b.outcome.code(), Code::unavailable);
}

TEST_F(TwoRanksTest, SeveralRanksMayCompleteAtOnce) {
  for (uint64_t number = 0; number < 200; ++number) {
    PendingOp a;
    PendingOp b;
    begin_folding(a, b);
    set_folded(number, kBlocks);
    std::thread other([&] { EXPECT_TRUE(queue(1).poll(b)); });
    EXPECT_TRUE(queue(0).poll(a));
    other.join();
    ASSERT_TRUE(a.outcome.ok() && b.outcome.ok());
    ASSERT_EQ(word(number).phase, Phase::done);
  }
}

// A rank that was stopped and resumes must not fold an operation that the worker has stopped.
TEST_F(TwoRanksTest, AStoppedOperationIsNotFolded) {
  PendingOp a;
  PendingOp b;
  begin_folding(a, b);
  slot(0).claimed = pack(board::Count{1, board::kNoMoreBlocks});
  EXPECT_FALSE(queue(0).fold_blocks(0));
  EXPECT_EQ(word(0).phase, Phase::folding);
  slot(0).claimed = pack(board::Count{2, 0});
  EXPECT_FALSE(queue(0).fold_blocks(0)) << "of another generation";
  EXPECT_EQ(slot(0).folded.load(), pack(board::Count{1, 0}));
  EXPECT_EQ(area().entry(0, 0).holding.load(), 0u);
}

TEST_F(TwoRanksTest, RanksShareTheBlocks) {
  PendingOp a;
  PendingOp b;
  begin_folding(a, b);
  EXPECT_TRUE(queue(0).fold_blocks(0, 1));
  EXPECT_TRUE(queue(1).fold_blocks(0, 1));
  EXPECT_EQ(slot(0).folded.load(), pack(board::Count{1, 2}));
  EXPECT_EQ(word(0).phase, Phase::folding);
  EXPECT_TRUE(queue(0).fold_blocks(0));
  EXPECT_EQ(word(0).phase, Phase::done);
  EXPECT_FALSE(queue(1).fold_blocks(0));
  EXPECT_TRUE(queue(0).poll(a) && queue(1).poll(b));
  for (const Rank& rank : ranks_)
    for (uint64_t i = 0; i < kCount; ++i)
      ASSERT_EQ(rank.out[i], static_cast<float>(2 * (i % 100) + 3)) << i;
}

}  // namespace
}  // namespace tutti::client

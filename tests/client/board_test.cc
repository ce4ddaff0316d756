// The ranks' side of the board, each step by itself: what a job does at moments that are too short
// to meet from outside. The worker's side is real sessions.
#include "tests/client/board.h"

namespace tutti::client {
namespace {

using ::testing::HasSubstr;

TEST_F(ClientBoardTest, TheLastToArriveFoldsForAll) {
  for (uint64_t number = 0; number < 3 * kBoardSlots; ++number) {
    const auto value = static_cast<float>(number);
    Ticket first;
    Ticket last;
    ASSERT_TRUE(ranks_[number % 2].arrive(first, value).ok());
    ASSERT_EQ(first.number, number);
    ASSERT_EQ(word(number), (board::SlotWord{board::turn_of(number), Phase::open, false, 1}));
    ASSERT_TRUE(ranks_[(number + 1) % 2].arrive(last, 1).ok());
    ASSERT_EQ(word(number), (board::SlotWord{board::turn_of(number), Phase::done, false, 2}));
    ASSERT_EQ(*ranks_[0].out, value + 1);
    ASSERT_EQ(*ranks_[1].out, value + 1);
    ASSERT_TRUE(calls(number % 2).done(first) && calls((number + 1) % 2).done(last));
    ASSERT_TRUE(first.outcome.ok() && last.outcome.ok());
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(area().entry(number, rank).holding.load(), 0u);
      ASSERT_EQ(area().settled(rank).load(), number + 1);
    }
  }
  drain(loop_);
  EXPECT_TRUE(ranks_[0].events.requests.empty()) << "the worker had no part in it";
}

TEST_F(ClientBoardTest, WhoComesToACalledOperationComesToTheWorker) {
  Ticket a;
  Ticket b;
  ASSERT_TRUE(ranks_[0].arrive(a, 1).ok());
  session(0).set_ranks_decide(false);  // Who arrived before is taken over.
  session(0).set_ranks_decide(true);
  EXPECT_EQ(word(0).phase, Phase::called);
  drain(loop_);
  EXPECT_EQ(taken_of(0), std::vector<uint64_t>{0});
  ASSERT_TRUE(ranks_[1].arrive(b, 1).ok());
  EXPECT_EQ(word(0), (board::SlotWord{1, Phase::called, false, 2}));
  drain(loop_);
  EXPECT_EQ(taken_of(1), std::vector<uint64_t>{0});
  session(1).complete(0, 0, unavailable("because", {1, "h"}));
  EXPECT_TRUE(calls(0).done(a) && calls(1).done(b));
  for (const Ticket* ticket : {&a, &b}) {
    EXPECT_EQ(ticket->outcome.code(), Code::unavailable);
    EXPECT_EQ(ticket->outcome.message(), "because");
    EXPECT_EQ(ticket->outcome.culprit().rank, 1);
    EXPECT_EQ(ticket->outcome.culprit().host, "h");
  }
}

// It comes when there is a verdict already: the same.
TEST_F(ClientBoardTest, WhoComesAfterTheVerdictHearsIt) {
  Ticket a;
  Ticket b;
  ASSERT_TRUE(ranks_[0].arrive(a, 1).ok());
  session(0).set_ranks_decide(false);
  drain(loop_);
  session(0).complete(0, 0, unavailable("because", {1, "h"}));
  ASSERT_TRUE(ranks_[1].arrive(b, 1).ok());
  ASSERT_TRUE(calls(1).done(b) && calls(0).done(a));
  EXPECT_EQ(b.outcome.message(), "because");
  EXPECT_EQ(a.outcome.message(), "because");
  drain(loop_);
  EXPECT_EQ(taken_of(1), std::vector<uint64_t>{});
}

TEST_F(ClientBoardTest, WhereRanksDoNotDecideNobodyFolds) {
  session(0).set_ranks_decide(false);
  Ticket a;
  Ticket b;
  ASSERT_TRUE(ranks_[0].arrive(a, 1).ok());
  ASSERT_TRUE(ranks_[1].arrive(b, 2).ok());
  EXPECT_EQ(word(0), (board::SlotWord{1, Phase::called, false, 2}));
  EXPECT_FALSE(calls(0).help(0));
  drain(loop_);
  EXPECT_EQ(taken_of(0), std::vector<uint64_t>{0});
  EXPECT_EQ(taken_of(1), std::vector<uint64_t>{0});
  ASSERT_TRUE(session(0).let_ranks_fold(0, 0));  // The worker lets them.
  EXPECT_TRUE(calls(1).wait(b, 30'000).ok());
  EXPECT_TRUE(calls(0).done(a));
  EXPECT_EQ(*ranks_[0].out, 3);
  EXPECT_EQ(*ranks_[1].out, 3);
}

TEST_F(ClientBoardTest, RanksThatDisagreeAreTheWorkersBusiness) {
  Ticket a;
  Ticket b;
  ASSERT_TRUE(ranks_[0].arrive(a, 1, 2).ok());
  ASSERT_TRUE(ranks_[1].arrive(b, 1, 1).ok());
  EXPECT_EQ(word(0), (board::SlotWord{1, Phase::called, false, 2}));
  drain(loop_);
  EXPECT_EQ(taken_of(0), std::vector<uint64_t>{0});
  EXPECT_EQ(taken_of(1), std::vector<uint64_t>{0});
  EXPECT_EQ(area().entry(0, 1).holding.load(), 0u);
}

TEST_F(ClientBoardTest, ARankMayBeSoFarAhead) {
  std::vector<std::unique_ptr<Ticket>> tickets;
  for (uint32_t i = 0; i < kBoardSlots; ++i) {
    tickets.push_back(std::make_unique<Ticket>());
    ASSERT_TRUE(ranks_[0].arrive(*tickets.back(), 1).ok());
  }
  Ticket more;
  std::thread ahead([&] { EXPECT_TRUE(ranks_[0].arrive(more, 1).ok()); });
  Ticket other;
  ASSERT_TRUE(ranks_[1].arrive(other, 1).ok());
  while (!calls(1).done(other)) {
  }
  ahead.join();
  EXPECT_EQ(more.number, kBoardSlots) << "operation 0 is over, for all";
}

// A rank that takes no note of its verdicts keeps the slots: the others wait for it, and are lost
// with its name when their time is up, as a call that gave up would leave its place to the next.
TEST_F(ClientBoardTest, WhoDoesNotSettleIsNamed) {
  std::vector<std::unique_ptr<Ticket>> tickets;
  for (uint32_t i = 0; i < kBoardSlots; ++i) {
    tickets.push_back(std::make_unique<Ticket>());
    ASSERT_TRUE(ranks_[1].arrive(*tickets.back(), 1).ok());
    Ticket own;
    ASSERT_TRUE(ranks_[0].arrive(own, 1).ok());
    ASSERT_TRUE(calls(0).done(own));
  }
  Ticket more;
  ranks_[0].timeout_ms = 50;
  const Status full = ranks_[0].arrive(more, 1);
  EXPECT_EQ(full.code(), Code::resource_exhausted);
  EXPECT_THAT(full.message(), HasSubstr("rank 1 (host h) has not taken note"));
  EXPECT_EQ(ranks_[0].arrive(more, 1).code(), Code::resource_exhausted) << "it is lost";
}

// ---- Deaths of those who fold ----

TEST_F(ClientBoardTest, WhatADeadRankFoldedIsDone) {
  Ticket a;
  Ticket b;
  begin_folding(a, b);
  set_folded(0, kBlocks);
  area().entry(0, 1).holding = kBlocks;  // It died before it could say so.
  EXPECT_TRUE(calls(0).done(a));
  EXPECT_TRUE(a.outcome.ok()) << a.outcome.message();
  EXPECT_EQ(word(0).phase, Phase::done);
}

TEST_F(ClientBoardTest, WhatIsNotFoldedIsNotConcluded) {
  Ticket a;
  Ticket b;
  begin_folding(a, b);
  set_folded(0, kBlocks - 1);
  EXPECT_FALSE(calls(0).done(a)) << "a block is missing";
  slot(0).folded = pack(board::Count{2, kBlocks});
  EXPECT_FALSE(calls(0).done(a)) << "of another turn";
  EXPECT_EQ(word(0).phase, Phase::folding);
  set_folded(0, kBlocks);
  BoardFailure& why = area().failure(0);
  why.number = 0;
  why.code = TUTTI_UNAVAILABLE;
  slot(0).word = pack(board::SlotWord{1, Phase::failed, false, 2});
  EXPECT_TRUE(calls(0).done(a) && calls(1).done(b));
  EXPECT_EQ(a.outcome.code(), Code::unavailable) << "the worker's verdict stays";
  EXPECT_EQ(b.outcome.code(), Code::unavailable);
}

TEST_F(ClientBoardTest, SeveralMayConcludeAtOnce) {
  for (uint64_t number = 0; number < 200; ++number) {
    Ticket a;
    Ticket b;
    begin_folding(a, b);
    set_folded(number, kBlocks);
    std::thread other([&] { EXPECT_TRUE(calls(1).done(b)); });
    EXPECT_TRUE(calls(0).done(a));
    other.join();
    ASSERT_TRUE(a.outcome.ok() && b.outcome.ok());
    ASSERT_EQ(word(number).phase, Phase::done);
  }
}

// A rank that was stopped and goes on must not fold what the worker gave up.
TEST_F(ClientBoardTest, WhatWasGivenUpIsNotFolded) {
  Ticket a;
  Ticket b;
  begin_folding(a, b);
  slot(0).claimed = pack(board::Count{1, board::kNoMoreBlocks});
  EXPECT_FALSE(calls(0).help(0));
  EXPECT_EQ(word(0).phase, Phase::folding);
  slot(0).claimed = pack(board::Count{2, 0});
  EXPECT_FALSE(calls(0).help(0)) << "of another turn";
  EXPECT_EQ(slot(0).folded.load(), pack(board::Count{1, 0}));
  EXPECT_EQ(area().entry(0, 0).holding.load(), 0u);
}

TEST_F(ClientBoardTest, HelpersShareTheBlocks) {
  Ticket a;
  Ticket b;
  begin_folding(a, b);
  EXPECT_TRUE(calls(0).help(0, 1));
  EXPECT_TRUE(calls(1).help(0, 1));
  EXPECT_EQ(slot(0).folded.load(), pack(board::Count{1, 2}));
  EXPECT_EQ(word(0).phase, Phase::folding);
  EXPECT_TRUE(calls(0).help(0));
  EXPECT_EQ(word(0).phase, Phase::done);
  EXPECT_FALSE(calls(1).help(0));
  EXPECT_TRUE(calls(0).done(a) && calls(1).done(b));
  for (const Rank& rank : ranks_)
    for (uint64_t i = 0; i < kCount; ++i)
      ASSERT_EQ(rank.out[i], static_cast<float>(2 * (i % 100) + 3)) << i;
}

}  // namespace
}  // namespace tutti::client

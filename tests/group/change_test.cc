// The rules of Follower and Leader one by one: departures, changes of strategies, invalid messages;
// and the budget for data sent ahead. Pure, without links or threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/group/early_budget.h"
#include "daemon/group/links.h"
#include "tests/group/agreement.h"

namespace tutti {
namespace {

using testing::AgreementTest;
using testing::all_reduce_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(AgreementTest, ADeathSparesWhatTheDeadHadReached) {
  for (const int rank : {3, 0}) call(rank, all_reduce_of(4));
  call(0, all_reduce_of(4));
  leave(3, unavailable("rank 3 (host b, pid 4703) died"));
  const Status status = answers_[0].at(1);
  EXPECT_EQ(status.code(), Code::unavailable);
  EXPECT_THAT(status.message(), HasSubstr("died during all_reduce #1"));
  EXPECT_EQ(status.culprit(), (Culprit{3, "b"}));
  for (const int rank : {1, 2}) call(rank, all_reduce_of(4));
  ASSERT_TRUE(started(0));
  complete(0);
  EXPECT_TRUE(told(0).ok());
  for (const int rank : {1, 2}) call(rank, all_reduce_of(4));
  EXPECT_EQ(told(1), status);
  call(1, all_reduce_of(4));
  EXPECT_EQ(answers_[0].at(2).culprit().rank, 3);
}

TEST_F(AgreementTest, TheFirstDepartureIsBlamedOnAllHosts) {
  leave(2, unavailable("rank 2 died"));
  leave(1, unavailable("rank 1 died"));
  call(0, all_reduce_of(4));
  call(3, all_reduce_of(4));
  EXPECT_EQ(told(0).culprit().rank, 2);
}

TEST_F(AgreementTest, EachHostDatesADeparture) {
  pass(10);
  leave(2, unavailable("rank 2 died"));
  pass(10);
  for (const int rank : {0, 2}) {
    const std::vector<Departure>& gone = follower_of(rank).departures();
    ASSERT_EQ(gone.size(), 1U);
    EXPECT_EQ(gone[0].at, TimePoint(Millis(10)));
  }
}

TEST_F(AgreementTest, AGroupWithoutTheDeadGoesOn) {
  leave(3, unavailable("rank 3 died"));
  for (const int host : {0, 1}) ASSERT_TRUE(followers_[host]->make_group(77, {2, 0}).ok());
  run();
  followers_[1]->on_call(77, 0, {all_reduce_of(1), {}, now_ + Millis(9), 9}, now_);
  followers_[0]->on_call(77, 1, {all_reduce_of(1), {}, now_ + Millis(9), 9}, now_);
  run();
  EXPECT_TRUE(started(0));
}

// Ranks 0 and 2 have a group of their own, which rank 3, who dies, is no member of.
class ConsequenceTest : public AgreementTest {
 protected:
  ConsequenceTest() {
    for (const int host : {0, 1}) EXPECT_TRUE(followers_[host]->make_group(77, {0, 2}).ok());
    run();
    leave(3, unavailable("rank 3 (host b, pid 4703) died"));
    call(0, all_reduce_of(4));
    EXPECT_EQ(answers_[0].at(0).culprit(), (Culprit{3, "b"}));
  }
  void call_in_pair(int host) {
    followers_[host]->on_call(77, host, {all_reduce_of(1), {}, now_ + Millis(9), 9}, now_);
    run();
  }
};

TEST_F(ConsequenceTest, WhoGoesBecauseOfTheDeadIsNotToBlame) {
  leave(0, {});
  call_in_pair(1);
  EXPECT_EQ(answers_[1].at(0).message(),
            "rank 3 (host b, pid 4703) died; because of it rank 0 (host a, pid 4700) left during "
            "all_reduce #0; join again to form a new group");
  EXPECT_EQ(answers_[1].at(0).culprit(), (Culprit{3, "b"}));
  EXPECT_TRUE(is_rank_left(answers_[1].at(0)));
}

TEST_F(ConsequenceTest, WhoEndsWithoutLeavingBecauseOfTheDeadIsNotToBlame) {
  leave(0, unavailable("rank 0 (host a, pid 4700) died"));
  call_in_pair(1);
  EXPECT_THAT(answers_[1].at(0).message(),
              HasSubstr("died; because of it rank 0 (host a, pid 4700) died during"));
  EXPECT_EQ(answers_[1].at(0).culprit(), (Culprit{3, "b"}));
}

TEST_F(ConsequenceTest, WhoWentOnAfterTheDeathIsToBlame) {
  for (const int host : {0, 1}) call_in_pair(host);
  for (const auto& follower : followers_) follower->on_finished({77, 0}, {});
  run();
  EXPECT_TRUE(told(0).ok());
  leave(0, {});
  call_in_pair(1);
  EXPECT_EQ(answers_[1].at(1).culprit(), (Culprit{0, "a"}));
}

// A call of a rank on the pair's group may fail again before one succeeds.
TEST(Consequences, LastUntilALaterCallHasSucceeded) {
  const Status gone = unavailable("rank 3 died", {3, "b"});
  Consequences consequences;
  consequences.on_call(0, {7, 0});
  consequences.on_call(0, {7, 1});
  consequences.on_end(0, {7, 0}, gone);
  consequences.on_end(0, {7, 1}, {});
  EXPECT_EQ(consequences.cause_of(0), 3) << "that one was open before";
  consequences.on_call(0, {7, 2});
  consequences.on_end(0, {7, 2}, deadline_exceeded("late"));
  EXPECT_EQ(consequences.cause_of(0), 3);
  consequences.on_call(0, {7, 3});
  consequences.on_call(0, {7, 4});
  consequences.on_end(0, {7, 4}, {});
  EXPECT_EQ(consequences.cause_of(0), -1);
  EXPECT_TRUE(consequences.empty());
}

// The leader's links with one follower, which the test closes.
class ClosingTest : public AgreementTest, public Links::Events {
 protected:
  class NoLink final : public Link {
   public:
    Status send(Outgoing) override { return {}; }
    void close(Status) override {}
    void abort(Status) override {}
  };
  class NoTransport final : public Transport {
   public:
    std::string name() const override { return "none"; }
    Result<std::string> listen(const std::string&, Acceptor) override { return std::string(); }
    std::shared_ptr<Link> connect(const std::string&, const LinkHello&,
                                  std::shared_ptr<LinkHandler>) override {
      return std::make_shared<NoLink>();
    }
  };
  ClosingTest() {
    for (const auto& handler : {control_, data_})
      links_.add_link(1, std::make_shared<NoLink>(), handler);
  }
  void on_frame(int, Frame) override {}
  void on_lost(int, Status cause) override { lost_.push_back(cause.message()); }
  std::shared_ptr<RecvBuffer> recv_buffer_for(int, const FrameHeader&) override { return nullptr; }

  Loop loop_;
  NoTransport transport_;
  std::vector<std::string> lost_;
  const std::shared_ptr<LoopHandler> control_ = std::make_shared<LoopHandler>(loop_);
  const std::shared_ptr<LoopHandler> data_ = std::make_shared<LoopHandler>(loop_);
  Links links_{loop_, transport_, roster_, hosts_, 0, *this};
};

// What it said last is read from that link alone.
TEST_F(ClosingTest, AFollowerThatEndsInOrderIsGoneOnceItsLinkOfControlCloses) {
  const Status ended =
      unavailable("the peer closed the link: the worker of host b has ended this epoch");
  data_->on_closed(ended);
  EXPECT_THAT(lost_, IsEmpty());
  control_->on_closed(ended);
  EXPECT_THAT(lost_, ::testing::ElementsAre(ended.message()));
}

TEST_F(ClosingTest, ABrokenLinkIsALossAtOnce) {
  data_->on_closed(unavailable("the link broke"));
  EXPECT_THAT(lost_, ::testing::ElementsAre("the link broke"));
}

TEST_F(AgreementTest, AChangeOfStrategiesIsInForceFromOneOperationOnEverywhere) {
  const Strategies tree{{StrategyKind::centralized, 0}, {StrategyKind::tree, 2}};
  for (int i = 0; i < 5; ++i) call_all(all_reduce_of(4));
  for (int i = 0; i < 3; ++i)
    for (const int rank : {2, 3}) call(rank, all_reduce_of(4));  // Host b is ahead.
  leader_.set_job(tree);
  run();
  for (int i = 0; i < 60; ++i) call_all(all_reduce_of(4));
  uint64_t changed = 0;
  for (uint64_t number = 0; number < 65; ++number) {
    ASSERT_EQ(strategies_[0].at(number), strategies_[1].at(number)) << number;
    changed += strategies_[0].at(number) == tree;
  }
  EXPECT_EQ(changed, 65 - (8 + kFenceAhead));
  EXPECT_EQ(leader_.pending(), 0u);
}

TEST_F(AgreementTest, EveryLevelIsDecidedAndWhatIsAskedForIsKept) {
  Signature signature = all_reduce_of(4);
  const Strategy central{StrategyKind::centralized, 0};
  call_all(signature);
  EXPECT_EQ(strategies_[0].at(0), (Strategies{central, {StrategyKind::ring, 0}}));
  call_all(Signature());  // A barrier.
  EXPECT_EQ(strategies_[0].at(1), (Strategies{central, central}));
  signature.strategies = {{StrategyKind::tree, 3}, {StrategyKind::ring}};
  call_all(signature);
  EXPECT_EQ(strategies_[0].at(2), signature.strategies);
}

TEST_F(AgreementTest, WhatWasMeasuredDecidesForOperationsOfItsSizeAlone) {
  leader_.set_measured(0, Collective::all_reduce, size_class(all_reduce_of(4)),
                       {StrategyKind::tree, 2});
  run();
  for (int i = 0; i < 40; ++i) call_all(all_reduce_of(4));
  call_all(all_reduce_of(400));
  EXPECT_EQ(strategies_[1].at(39).global, (Strategy{StrategyKind::tree, 2}));
  EXPECT_EQ(strategies_[1].at(40).global, (Strategy{StrategyKind::ring, 0}));
}

TEST_F(AgreementTest, NoHostStartsPastItsFenceBeforeTheChangeIsAdopted) {
  silent_ = 1;
  leader_.set_job({{StrategyKind::centralized, 0}, {StrategyKind::ring, 0}});
  for (int i = 0; i < 60; ++i)
    for (const int rank : {0, 1}) call(rank, all_reduce_of(4));
  EXPECT_EQ(starts_[0].size(), kFenceAhead);
}

// Each breaks one rule and, if accepted, would be looked up where there is nothing.
TEST_F(AgreementTest, InvalidReportsAreRefused) {
  Report sound;  // Of host b, which has ranks 2 and 3.
  sound.op = {0, 7};
  sound.reason = Report::Reason::waiting;
  sound.phase = Report::Phase::gathering;
  sound.rank = 2;
  sound.signature = all_reduce_of(4);
  EXPECT_TRUE(leader_.on_message(1, sound, now_).ok());
  const auto refused = [&](const char* what, const auto& spoil) {
    Report report = sound;
    spoil(report);
    EXPECT_EQ(leader_.on_message(1, report, now_).code(), Code::data_loss) << what;
    EXPECT_THAT(leader_.take_sends(), IsEmpty()) << what;
  };
  for (const Ranks& members : {Ranks{0, 99}, {-1, 2}, {2, 2}, {0, 1}, {}})
    refused("no group, or one of others", [&](Report& report) {
      report.op.group = 9;
      report.members = members;
    });
  refused("an answer for others", [](Report& report) {
    report.op.group = 9;
    report.members = {0, 1};
    report.reason = Report::Reason::answer;
    report.rank = -1;
  });
  refused("the whole job by its members", [](Report& report) { report.members = {0, 2}; });
  for (const int rank : {-2, -1, 0, 4})
    refused("asked by no rank of its own", [&](Report& report) { report.rank = rank; });
  for (const int rank : {-1, 0, 4})
    refused("misses no rank of its own", [&](Report& report) { report.missing = {3, rank}; });
  refused("waits for nobody there is", [](Report& report) { report.waiting_for = 4; });
  refused("a refusal that is none",
          [](Report& report) { report.reason = Report::Reason::refusal; });
  for (const int peer : {-1, 1, 2})
    refused("met no other host", [&](Report& report) {
      report.reason = Report::Reason::mismatch;
      report.peer = peer;
    });
}

// Messages are untrusted: each of these is refused.
TEST_F(AgreementTest, InvalidMessagesToTheLeaderAreRefused) {
  const auto taken = [&](const Message& message) {
    return leader_.on_message(1, message, now_).ok();
  };
  EXPECT_FALSE(taken(Query{}));
  EXPECT_FALSE(taken(Abort{}));
  for (const int rank : {-5, 0, 4}) EXPECT_FALSE(taken(RankGone{rank, {}, {}})) << rank;
  for (const Ranks& members : {Ranks{}, {2, 2}, {2, 99}, {0, 1}})
    EXPECT_FALSE(taken(Announce{5, members}));
  EXPECT_FALSE(taken(Announce{0, {}}));
  for (const uint32_t group : {0, 7}) EXPECT_FALSE(taken(Fence{group, 0, 5})) << "nothing is asked";
  leader_.set_job({{StrategyKind::centralized, 0}, {StrategyKind::tree, 2}});
  for (const uint32_t version : {0, 2}) EXPECT_FALSE(taken(Fence{0, version, 5})) << version;
  EXPECT_TRUE(taken(Fence{0, 1, 5}));
}

TEST_F(AgreementTest, GroupsThatAreAnnouncedAreBounded) {
  const auto most = static_cast<uint32_t>(kGroupsMax * hosts_.size());
  for (uint32_t group = 1; group < most; ++group)
    ASSERT_TRUE(leader_.on_message(1, Announce{group, {2}}, now_).ok()) << group;
  EXPECT_FALSE(leader_.on_message(1, Announce{most, {2}}, now_).ok());
}

TEST_F(AgreementTest, InvalidMessagesToAMemberAreRefused) {
  const auto taken = [&](const Message& message) {
    return followers_[1]->on_message(message, now_).ok();
  };
  const Status cause = unavailable("it is gone");
  EXPECT_FALSE(taken(Report{}));
  EXPECT_FALSE(taken(Abort{}));
  EXPECT_FALSE(taken(RankGone{77, {}, {}}));
  EXPECT_FALSE(taken(Query{{7, 0}, {0, 99}}));
  EXPECT_FALSE(taken(Fail{{7, 0}, {0, 99}, cause}));
  EXPECT_FALSE(taken(Fail{{0, 0}, {}, {}}));
  for (const uint32_t version : {0, 1})
    EXPECT_FALSE(taken(Adopt{0, version, kFenceAhead})) << "nothing is proposed";
  EXPECT_FALSE(taken(Adopt{7, 1, 500}));
  EXPECT_FALSE(taken(Propose{7, {0, 99}, 1, {}}));
  EXPECT_TRUE(taken(Propose{0, {}, 1, {}}));
  EXPECT_FALSE(taken(Propose{0, {}, 2, {}})) << "one at a time";
  EXPECT_FALSE(taken(Adopt{0, 2, 500}));
  EXPECT_FALSE(taken(Adopt{0, 1, kFenceAhead - 1})) << "it may have started that";
  EXPECT_TRUE(taken(Adopt{0, 1, kFenceAhead}));
  EXPECT_TRUE(followers_[1]->cause().ok());
}

TEST_F(AgreementTest, ARankFarBehindEndsTheEpochAtANamedNumberOfFailures) {
  for (uint64_t number = 0; number <= kFailuresMax; ++number) {
    ASSERT_TRUE(followers_[1]->cause().ok());
    const Fail fail{{0, number}, {}, invalid_argument("nonsense")};
    EXPECT_TRUE(followers_[1]->on_message(fail, now_).ok());
  }
  EXPECT_EQ(followers_[1]->cause().code(), Code::resource_exhausted);
  EXPECT_EQ(followers_[1]->pending(), 0u);
}

// ---- The budget for data sent ahead ----

TEST(EarlyTest, WhatIsKnownToHaveStartedNeedsNoBudget) {
  EarlyBudget early(2, 100);
  EXPECT_EQ(early.admit(1, {0, 5}, 60), EarlyBudget::Admission::granted);
  EXPECT_EQ(early.admit(1, {0, 6}, 60), EarlyBudget::Admission::wait_and_ask);
  EXPECT_EQ(early.admit(1, {0, 6}, 60), EarlyBudget::Admission::wait);
  EXPECT_FALSE(early.take_unblocked());
  early.on_peer_started(1, {0, 6});
  EXPECT_TRUE(early.take_unblocked());
  EXPECT_EQ(early.admit(1, {0, 6}, 1'000'000), EarlyBudget::Admission::granted);
  EXPECT_EQ(early.admit(1, {0, 7}, 60), EarlyBudget::Admission::wait_and_ask);
  early.on_ended({0, 5});
  EXPECT_TRUE(early.take_unblocked());
  EXPECT_EQ(early.admit(1, {0, 7}, 60), EarlyBudget::Admission::granted);
  early.refund(1, {0, 7}, 60);
  EXPECT_EQ(early.admit(1, {0, 8}, 100), EarlyBudget::Admission::granted);
  for (const uint64_t number : {6, 7, 8}) early.on_ended({0, number});
  EXPECT_EQ(early.size(), 0u);
}

TEST(EarlyTest, EachHostHasABudgetAndIsNotifiedOnce) {
  EarlyBudget early(3, 100);
  EXPECT_EQ(early.admit(1, {0, 5}, 100), EarlyBudget::Admission::granted);
  EXPECT_EQ(early.admit(2, {0, 5}, 100), EarlyBudget::Admission::granted);
  early.add_waiter(1, {0, 9});
  early.add_waiter(2, {0, 9});
  EXPECT_EQ(early.take_waiters({0, 9}), (std::set<int>{1, 2}));
  EXPECT_TRUE(early.take_waiters({0, 9}).empty());
}

}  // namespace
}  // namespace tutti

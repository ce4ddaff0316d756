// The rules of Member and Leader one by one: who is gone, which strategies are in force, what is
// not believed, and how much is sent ahead. Pure, without links or threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/group/early.h"
#include "tests/group_agreement.h"

namespace tutti {
namespace {

using testing::AgreementTest;
using testing::all_reduce_of;
using ::testing::HasSubstr;

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

TEST_F(AgreementTest, OfTwoWhoAreGoneTheFirstToldIsToBlameEverywhere) {
  leave(2, unavailable("rank 2 died"));
  leave(1, unavailable("rank 1 died"));
  call(0, all_reduce_of(4));
  call(3, all_reduce_of(4));
  EXPECT_EQ(told(0).culprit().rank, 2);
}

TEST_F(AgreementTest, AGroupWithoutTheDeadGoesOn) {
  leave(3, unavailable("rank 3 died"));
  for (const int host : {0, 1}) ASSERT_TRUE(members_[host]->make(77, {2, 0}).ok());
  run();
  members_[1]->arrive(77, 0, {all_reduce_of(1), {}, now_ + Millis(9), 9}, now_);
  members_[0]->arrive(77, 1, {all_reduce_of(1), {}, now_ + Millis(9), 9}, now_);
  run();
  EXPECT_TRUE(started(0));
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
  const Member& member = *members_[0];
  Signature signature = all_reduce_of(4);
  const Strategy central{StrategyKind::centralized, 0};
  EXPECT_EQ(member.resolve(0, signature), (Strategies{central, {StrategyKind::ring, 0}}));
  EXPECT_EQ(member.resolve(0, Signature()), (Strategies{central, central}));  // A barrier.
  signature.strategies = {{StrategyKind::tree, 3}, {StrategyKind::ring}};
  EXPECT_EQ(member.resolve(0, signature), signature.strategies);
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

// A peer's message is believed in nothing: each of these is refused.
TEST_F(AgreementTest, MessagesThatMakeNoSenseAreRefused) {
  Report base;
  base.reason = Report::Reason::late;
  base.rank = 2;
  std::vector<Report> reports(8, base);
  reports[0].rank = 0;  // Lives elsewhere.
  reports[1].rank = 99;
  reports[2].missing = {1};
  reports[3].members = {0, 1, 2, 3};  // The whole job is not named.
  reports[4].key.group = 7;           // A group that is not.
  reports[5] = base;
  reports[5].reason = Report::Reason::mismatch;  // With itself.
  reports[5].peer = 1;
  reports[6].reason = Report::Reason::refusal;  // For no reason.
  reports[7].waiting_for = 9;
  for (const Report& report : reports) EXPECT_FALSE(leader_.take(1, report, now_).ok());
  EXPECT_FALSE(leader_.take(1, Gone{0, {}, {}}, now_).ok());
  EXPECT_FALSE(leader_.take(1, Gone{-5, {}, {}}, now_).ok());
  EXPECT_FALSE(leader_.take(1, Abort{}, now_).ok());
  EXPECT_FALSE(leader_.take(1, Announce{5, {0, 0}}, now_).ok());
  EXPECT_FALSE(leader_.take(1, Announce{5, {0, 1}}, now_).ok());
  EXPECT_FALSE(leader_.take(1, Fence{0, 1, 5}, now_).ok());
  EXPECT_FALSE(leader_.take(1, Query{}, now_).ok());
  Member& member = *members_[1];
  EXPECT_FALSE(member.take(base, now_).ok());
  EXPECT_FALSE(member.take(Query{{7, 0}, {0, 99}}, now_).ok());
  EXPECT_FALSE(member.take(Fail{{0, 0}, {}, {}}, now_).ok());
  EXPECT_FALSE(member.take(Abort{}, now_).ok());
  EXPECT_FALSE(member.take(Gone{77, {}, {}}, now_).ok());
  EXPECT_FALSE(member.take(Adopt{0, 1, 5}, now_).ok());
  EXPECT_TRUE(member.cause().ok());
}

TEST_F(AgreementTest, ARankFarBehindEndsTheEpochAtANamedNumberOfFailures) {
  for (uint64_t number = 0; number <= kFailedMost; ++number) {
    ASSERT_TRUE(members_[1]->cause().ok());
    const Fail fail{{0, number}, {}, invalid_argument("nonsense")};
    EXPECT_TRUE(members_[1]->take(fail, now_).ok());
  }
  EXPECT_EQ(members_[1]->cause().code(), Code::resource_exhausted);
  EXPECT_EQ(members_[1]->pending(), 0u);
}

// ---- How much is sent ahead ----

TEST(EarlyTest, WhatIsKnownToHaveStartedNeedsNoBudget) {
  Early early(2, 100);
  EXPECT_EQ(early.admit(1, {0, 5}, 60), Early::Way::go);
  EXPECT_EQ(early.admit(1, {0, 6}, 60), Early::Way::ask);
  EXPECT_EQ(early.admit(1, {0, 6}, 60), Early::Way::wait);
  EXPECT_FALSE(early.take_news());
  early.known(1, {0, 6});
  EXPECT_TRUE(early.take_news());
  EXPECT_EQ(early.admit(1, {0, 6}, 1'000'000), Early::Way::go);
  EXPECT_EQ(early.admit(1, {0, 7}, 60), Early::Way::ask);
  early.over({0, 5});
  EXPECT_TRUE(early.take_news());
  EXPECT_EQ(early.admit(1, {0, 7}, 60), Early::Way::go);
  early.take_back(1, {0, 7}, 60);
  EXPECT_EQ(early.admit(1, {0, 8}, 100), Early::Way::go);
  for (const uint64_t number : {6, 7, 8}) early.over({0, number});
  EXPECT_EQ(early.size(), 0u);
}

TEST(EarlyTest, EachHostHasABudgetAndIsToldOnce) {
  Early early(3, 100);
  EXPECT_EQ(early.admit(1, {0, 5}, 100), Early::Way::go);
  EXPECT_EQ(early.admit(2, {0, 5}, 100), Early::Way::go);
  early.want(1, {0, 9});
  early.want(2, {0, 9});
  EXPECT_EQ(early.take_wanting({0, 9}), (std::set<int>{1, 2}));
  EXPECT_TRUE(early.take_wanting({0, 9}).empty());
}

}  // namespace
}  // namespace tutti

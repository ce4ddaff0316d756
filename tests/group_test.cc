// The leader's rules, and how `auto` chooses: pure, without links or threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/group/cost_model.h"
#include "daemon/group/matcher.h"
#include "proto/board.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

Roster roster_of(int ranks) {
  Roster roster;
  roster.job = "demo";
  roster.epoch = 1;
  for (int rank = 0; rank < ranks; ++rank)
    roster.ranks.push_back({static_cast<uint32_t>(4700 + rank), rank < 2 ? "a" : "b", ""});
  return roster;
}

Signature all_reduce_of(uint64_t count, Dtype dtype = Dtype::f32, Op op = Op::sum) {
  return {Collective::all_reduce, dtype, op, count, 0, {}};
}

class MatcherTest : public ::testing::Test {
 protected:
  Result<std::optional<Verdict>> arrive(int rank, uint64_t seq, Signature signature,
                                        int timeout_ms = 1000, Status invalid = {}) {
    return matcher_.arrive({0,
                            seq,
                            {0, 1, 2, 3},
                            rank,
                            signature,
                            invalid,
                            start_ + Millis(timeout_ms),
                            static_cast<uint32_t>(timeout_ms)});
  }

  const Roster roster_ = roster_of(4);
  Matcher matcher_{roster_};
  const TimePoint start_{};
};

TEST_F(MatcherTest, StartsWhenAllHaveArrivedAndAgree) {
  for (int rank : {2, 0, 3}) EXPECT_FALSE(arrive(rank, 0, all_reduce_of(7))->has_value());
  const Verdict verdict = **arrive(1, 0, all_reduce_of(7));
  EXPECT_TRUE(verdict.status.ok());
  EXPECT_EQ(verdict.seq, 0u);
  EXPECT_EQ(verdict.signature, all_reduce_of(7));
  EXPECT_EQ(matcher_.pending(), 0u);
}

TEST_F(MatcherTest, TheSecondOfTwoThatDisagreeFailsAllAndLateOnesChangeNothing) {
  EXPECT_FALSE(arrive(0, 0, all_reduce_of(4))->has_value());
  const Verdict verdict = **arrive(1, 0, all_reduce_of(5));
  EXPECT_EQ(verdict.status.code(), Code::failed_precondition);
  EXPECT_THAT(verdict.status.message(), HasSubstr("rank 0 (host a, pid 4700)"));
  EXPECT_THAT(verdict.status.message(), HasSubstr("f32[4]"));
  EXPECT_THAT(verdict.status.message(), HasSubstr("f32[5]"));
  EXPECT_EQ(verdict.status.culprit(), (Culprit{1, "a"}));
  EXPECT_FALSE(arrive(2, 0, all_reduce_of(4))->has_value());
  EXPECT_FALSE(arrive(3, 0, all_reduce_of(4))->has_value());
  for (int rank : {0, 1, 2}) EXPECT_FALSE(arrive(rank, 1, all_reduce_of(9))->has_value());
  EXPECT_TRUE((**arrive(3, 1, all_reduce_of(9))).status.ok());
}

TEST_F(MatcherTest, ListsOfTensorsThatDifferAreBothDescribed) {
  Signature list = all_reduce_of(9);
  list.layout = pack_layout(3, 0xbeef);
  EXPECT_FALSE(arrive(0, 0, list)->has_value());
  list.layout = pack_layout(4, 0xcafe);
  const Status status = (**arrive(1, 0, list)).status;
  EXPECT_EQ(status.code(), Code::failed_precondition);
  EXPECT_THAT(status.message(), HasSubstr("f32[9] sum of a list of 3 tensors (layout beef)"));
  EXPECT_THAT(status.message(), HasSubstr("f32[9] sum of a list of 4 tensors (layout cafe)"));
}

TEST_F(MatcherTest, EveryFieldThatMattersMustAgree) {
  const Signature base{Collective::reduce, Dtype::f32, Op::sum, 4, 1, {}};
  std::vector<Signature> others(7, base);
  others[0].collective = Collective::broadcast;
  others[1].dtype = Dtype::f16;
  others[2].op = Op::mean;
  others[3].count = 5;
  others[4].root = 2;
  others[5].strategies.global = {StrategyKind::ring, 0};
  others[6].layout = pack_layout(3, 0xbeef);
  uint64_t seq = 0;
  for (const Signature& other : others) {
    EXPECT_FALSE(arrive(0, seq, base)->has_value());
    EXPECT_EQ((**arrive(1, seq, other)).status.code(), Code::failed_precondition);
    arrive(2, seq, base).status();
    arrive(3, seq, base).status();
    ++seq;
  }
}

TEST_F(MatcherTest, FieldsWithoutMeaningMayDiffer) {
  Signature broadcast{Collective::broadcast, Dtype::f32, Op::sum, 4, 1, {}};
  for (int rank : {0, 1, 2}) EXPECT_FALSE(arrive(rank, 0, broadcast)->has_value());
  broadcast.op = Op::max;
  EXPECT_TRUE((**arrive(3, 0, broadcast)).status.ok());
}

TEST_F(MatcherTest, ARefusedRequestFailsTheOperationForAll) {
  EXPECT_FALSE(arrive(0, 0, all_reduce_of(4))->has_value());
  const Status refused = invalid_argument("rank 1 asked for nonsense", {1, "a"});
  EXPECT_EQ((**arrive(1, 0, all_reduce_of(4), 1000, refused)).status, refused);
}

TEST_F(MatcherTest, TheEarliestDeadlineNamesWhoIsMissing) {
  EXPECT_FALSE(arrive(0, 0, all_reduce_of(4), 1000)->has_value());
  EXPECT_FALSE(arrive(2, 0, all_reduce_of(4), 500)->has_value());
  EXPECT_EQ(matcher_.next_deadline(), start_ + Millis(500));
  EXPECT_TRUE(matcher_.expire(start_ + Millis(499)).empty());
  const std::vector<Verdict> verdicts = matcher_.expire(start_ + Millis(500));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].status.code(), Code::deadline_exceeded);
  EXPECT_THAT(verdicts[0].status.message(), HasSubstr("all_reduce #0 timed out after 500 ms"));
  EXPECT_THAT(verdicts[0].status.message(), HasSubstr("rank 1 (host a, pid 4701)"));
  EXPECT_THAT(verdicts[0].status.message(), HasSubstr("rank 3 (host b, pid 4703)"));
  EXPECT_EQ(verdicts[0].status.culprit(), (Culprit{1, "a"}));
  EXPECT_FALSE(matcher_.next_deadline().has_value());
}

TEST_F(MatcherTest, ADeathSparesWhatTheDeadHadReached) {
  for (int rank : {3, 0}) EXPECT_FALSE(arrive(rank, 0, all_reduce_of(4))->has_value());
  EXPECT_FALSE(arrive(0, 1, all_reduce_of(4))->has_value());
  const Status died = unavailable("rank 3 (host b, pid 4703) died");
  const std::vector<Verdict> verdicts = matcher_.gone(3, died);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].seq, 1u);
  EXPECT_EQ(verdicts[0].status.code(), Code::unavailable);
  EXPECT_THAT(verdicts[0].status.message(), HasSubstr("died during all_reduce #1"));
  EXPECT_EQ(verdicts[0].status.culprit(), (Culprit{3, "b"}));
  EXPECT_FALSE(arrive(1, 0, all_reduce_of(4))->has_value());
  EXPECT_TRUE((**arrive(2, 0, all_reduce_of(4))).status.ok());
  EXPECT_FALSE(arrive(1, 1, all_reduce_of(4))->has_value());
  EXPECT_EQ((**arrive(1, 2, all_reduce_of(4))).status.culprit().rank, 3);
}

TEST_F(MatcherTest, AGroupWithoutTheDeadGoesOn) {
  (void)matcher_.gone(3, unavailable("rank 3 died"));
  const auto sub = [&](int rank) {
    return matcher_.arrive({77, 0, {2, 0}, rank, all_reduce_of(1), {}, start_ + Millis(9), 9});
  };
  EXPECT_FALSE(sub(0)->has_value());
  EXPECT_TRUE((**sub(1)).status.ok());
}

TEST_F(MatcherTest, ArrivalsTwiceOrOutOfPlaceAreTheSendersFault) {
  EXPECT_EQ(arrive(9, 0, all_reduce_of(4)).status().code(), Code::invalid_argument);
  EXPECT_FALSE(arrive(0, 0, all_reduce_of(4))->has_value());
  EXPECT_EQ(arrive(0, 0, all_reduce_of(4)).status().code(), Code::invalid_argument);
}

TEST(CostModelTest, AutoIsDecidedByBytesAndNeverLeftOpen) {
  const std::vector<std::vector<int>> hosts = {{0, 1}, {2, 3}, {4}, {5}, {6}, {7}, {8}, {9}};
  const Strategies small = choose({}, Collective::all_reduce, 4, hosts);
  const Strategies large = choose({}, Collective::all_reduce, uint64_t{256} << 20, hosts);
  EXPECT_EQ(small.local.kind, StrategyKind::centralized);
  EXPECT_NE(small.global.kind, StrategyKind::ring);
  EXPECT_NE(small.global.kind, StrategyKind::automatic);
  EXPECT_EQ(large.global.kind, StrategyKind::ring);
}

TEST(CostModelTest, WhatIsAskedForIsKept) {
  const Strategies asked{{StrategyKind::tree, 3}, {StrategyKind::ring, 0}};
  EXPECT_EQ(choose(asked, Collective::broadcast, 10, {{0}, {1}}), asked);
}

}  // namespace
}  // namespace tutti

// The cost model and what `auto` makes of it, with times as numbers.
#include "daemon/tuning/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr Strategy kCentral{StrategyKind::centralized};
constexpr Strategy kRing{StrategyKind::ring};
constexpr Strategy tree(uint32_t arity) { return {StrategyKind::tree, arity}; }
constexpr uint64_t kMiB = uint64_t{1} << 20;

double us_of(const Work& work, const Strategy& strategy, const LinkCost& link,
             const HostCost& host = {}) {
  return predict(work, traffic_of(work.collective, strategy, work.hosts), link, host).us;
}

// A host whose own work costs nothing: what is left can be counted.
constexpr HostCost kNoHost{0, 0, 0, 0};

TEST(Predict, CountsTheMessagesOfASmallTensor) {
  const LinkCost link{10, 0};
  EXPECT_DOUBLE_EQ(us_of({Collective::all_reduce, 4, 8, 8}, kCentral, link, kNoHost), 20);
  EXPECT_DOUBLE_EQ(us_of({Collective::all_reduce, 4, 8, 8}, tree(2), link, kNoHost), 60);
  EXPECT_DOUBLE_EQ(us_of({Collective::all_reduce, 4, 8, 8}, kRing, link, kNoHost), 140);
  EXPECT_DOUBLE_EQ(us_of({Collective::broadcast, 4, 8, 8}, kCentral, link, kNoHost), 10 + 10)
      << "that all are ready, and the tensor";
  EXPECT_DOUBLE_EQ(us_of({Collective::barrier, 0, 1, 4}, kCentral, link, kNoHost), 0);
}

TEST(Predict, TheStartIsTwoMessagesAndTheTrainersHops) {
  HostCost host = kNoHost;
  host.hop_us = 3;
  const auto start_us = [&](int hosts) {
    const Work work{Collective::all_reduce, 4, hosts, hosts};
    return predict(work, traffic_of(work.collective, kCentral, hosts), {10, 0}, host).start_us;
  };
  EXPECT_DOUBLE_EQ(start_us(8), 26);
  EXPECT_DOUBLE_EQ(start_us(1), 6);
}

TEST(Predict, CountsTheBytesOfALargeTensor) {
  const LinkCost link{0, 0.001};
  const auto us = [&](const Strategy& strategy) {
    return us_of({Collective::all_reduce, 256 * kMiB, 4, 4}, strategy, link, kNoHost);
  };
  const double tensor_us = 256 * kMiB * 0.001;
  EXPECT_NEAR(us(kRing), 1.5 * tensor_us, 0.01 * tensor_us);   // 2 (n-1) / n.
  EXPECT_NEAR(us(kCentral), 3 * tensor_us, 0.02 * tensor_us);  // The root takes in three.
  EXPECT_NEAR(us(tree(1)), 2 * tensor_us, 0.02 * tensor_us);   // The chain's inner hosts send two.
}

TEST(Predict, HostsOfOneMachineShareItsCores) {
  HostCost host = kNoHost;
  host.frame_us = 10;
  const LinkCost link{0, 0};
  Work work{Collective::all_reduce, 4, 4, 4};
  // A frame is made and taken: 6 of the star's, 24 of the ring's.
  EXPECT_DOUBLE_EQ(us_of(work, kRing, link, host), 6 * 10);
  work.hosts_a_core = 2;
  EXPECT_DOUBLE_EQ(us_of(work, kCentral, link, host), 6 * 2 * 10 / 2.0);
  EXPECT_DOUBLE_EQ(us_of(work, kRing, link, host), 24 * 2 * 10 / 2.0);
}

TEST(Predict, BlocksCountWhole) {
  const LinkCost link{0, 0.001};
  // A block of 1 MiB from each of 8 ranks on 4 hosts: every host takes in six.
  const Prediction ring = predict({Collective::all_gather, kMiB, 4, 8},
                                  traffic_of(Collective::all_gather, kRing, 4), link, kNoHost);
  EXPECT_EQ(ring.sent_bytes, 6 * kMiB);
  EXPECT_NEAR(ring.us, 6 * kMiB * 0.001, 1);
}

TEST(Predict, TheWorkersThreadCanBeTheLimit) {
  HostCost host = kNoHost;
  host.copy_byte_us = 0.01;
  const Work work{Collective::all_reduce, 256 * kMiB, 2, 2};
  const double both_ways = 2 * 256 * kMiB * 0.01;
  EXPECT_NEAR(us_of(work, kRing, {0, 0.0001}, host), both_ways, 0.05 * both_ways);
}

TEST(Predict, ThousandsOfHostsCostNoTimeWorthNaming) {
  const Work work{Collective::all_reduce, 1024 * kMiB, 4096, 8 * 4096};
  const LinkCost link{50, 0.00008};
  EXPECT_LT(us_of(work, tree(2), link), us_of(work, kCentral, link));
  EXPECT_GT(us_of(work, kRing, link), 2 * 4095 * 50);
}

TEST(Candidates, AreThoseThatDiffer) {
  using ::testing::ElementsAre;
  EXPECT_THAT(candidates(Collective::all_reduce, 1), ElementsAre(kCentral));
  EXPECT_THAT(candidates(Collective::all_reduce, 2), ElementsAre(kCentral, kRing));
  EXPECT_THAT(candidates(Collective::all_reduce, 4),
              ElementsAre(tree(2), tree(1), kCentral, kRing));
  EXPECT_THAT(candidates(Collective::broadcast, 8),
              ElementsAre(tree(2), tree(4), tree(1), kCentral));
}

// ---- The tuner ----

class TunerTest : public ::testing::Test {
 protected:
  static constexpr auto kCollective = Collective::all_reduce;

  Strategy choose(bool may_try = false) {
    return tuner_.choose({party_, kCollective, bytes_}, may_try);
  }
  void observe(const Strategy& strategy, double us) {
    tuner_.observe({party_, kCollective, bytes_}, strategy, us);
  }
  // As many operations of each, in turn, as are believed.
  void measure(const std::vector<std::pair<Strategy, double>>& times) {
    for (uint64_t i = 0; i <= Tuner::kEnough; ++i)
      for (const auto& [strategy, us] : times) observe(strategy, us);
  }
  // Operations until the choice is `strategy`; -1: not within a thousand.
  int operations_until(const Strategy& strategy) {
    for (int i = 1; i <= 1000; ++i)
      if (choose() == strategy) return i;
    return -1;
  }
  Tuner::Row row(const Strategy& strategy) {
    for (const Tuner::Row& row : tuner_.rows())
      if (row.strategy == strategy) return row;
    return {};
  }

  Tuner tuner_;
  const int party_ = tuner_.host_set({{"a", "b", "c", "d"}, 4});
  uint64_t bytes_ = 64 * kMiB;
};

TEST_F(TunerTest, BeginsWithThePrediction) {
  EXPECT_EQ(choose(), kRing);
  bytes_ = 4;
  EXPECT_EQ(choose(), kCentral);
}

TEST_F(TunerTest, OnePartyHasOneNumber) {
  EXPECT_EQ(tuner_.host_set({{"a", "b", "c", "d"}, 4}), party_);
  EXPECT_NE(tuner_.host_set({{"a", "b", "c", "d"}, 8}), party_);
  EXPECT_NE(tuner_.host_set({{"b", "a", "c", "d"}, 4}), party_);
}

TEST_F(TunerTest, MeasuredTimesBeatPredictionsAfterEnoughAgreement) {
  EXPECT_EQ(choose(), kRing);
  measure({{kRing, 50'000}, {kCentral, 20'000}});
  EXPECT_EQ(operations_until(kCentral), Tuner::kAgreements);
  EXPECT_EQ(row(kCentral).measured_us, 20'000);
  EXPECT_EQ(row(kCentral).samples, Tuner::kEnough);
  EXPECT_TRUE(row(kCentral).chosen);
  EXPECT_FALSE(row(kRing).chosen);
}

TEST_F(TunerTest, ASmallGainChangesNothing) {
  EXPECT_EQ(choose(), kRing);
  measure({{kRing, 20'000}, {kCentral, 20'000 * (1 - 0.9 * Tuner::kMargin)}});
  EXPECT_EQ(operations_until(kCentral), -1);
}

TEST_F(TunerTest, AGainThatComesAndGoesChangesNothing) {
  EXPECT_EQ(choose(), kRing);
  measure({{kRing, 20'000}, {kCentral, 10'000}});
  for (int i = 0; i < 100; ++i) {
    for (int k = 1; k < Tuner::kAgreements; ++k) EXPECT_EQ(choose(), kRing);
    for (int k = 0; k < 9; ++k) observe(kCentral, 30'000);
    EXPECT_EQ(choose(), kRing);
    for (int k = 0; k < 9; ++k) observe(kCentral, 10'000);
  }
}

TEST_F(TunerTest, TheFirstTimeOfAStrategyCountsForNothing) {
  observe(kRing, 1e9);
  observe(kRing, 10'000);
  EXPECT_EQ(row(kRing).samples, 1u);
  EXPECT_EQ(row(kRing).measured_us, 10'000);
}

TEST_F(TunerTest, OneStrangeTimeIsNotBelieved) {
  measure({{kRing, 10'000}, {kCentral, 12'000}});
  observe(kRing, 1e9);
  EXPECT_EQ(row(kRing).measured_us, 10'000);
}

TEST_F(TunerTest, WithinASizeClassTimesAreTakenToItsFullSize) {
  choose();
  const double full = row(kRing).predicted_us;
  bytes_ = 48 * kMiB;
  const double less =
      predict({kCollective, bytes_, 4, 4}, traffic_of(kCollective, kRing, 4), LinkCost{}).us;
  observe(kRing, 2 * less);
  observe(kRing, 2 * less);
  EXPECT_NEAR(row(kRing).measured_us, 2 * full, 1);
  EXPECT_EQ(row(kRing).bytes, 64 * kMiB);
}

TEST_F(TunerTest, TriesNothingWhereBitsDependOnIt) {
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(choose(false), kRing);
    observe(kRing, 20'000);
  }
}

TEST_F(TunerTest, TriesEachPlausibleCandidateAFewTimesAndNoMore) {
  std::map<Strategy, uint64_t> runs;
  for (uint64_t i = 0; i < 1000; ++i) {
    const Strategy used = choose(true);
    if (i < Tuner::kTrialsAfter) {
      EXPECT_EQ(used, kRing);
    }
    ++runs[used];
    observe(used, used == kRing ? 20'000 : 30'000);
  }
  EXPECT_EQ(runs.size(), 4u);
  for (const Strategy& other : {tree(1), tree(2), kCentral})
    EXPECT_EQ(runs[other], Tuner::kEnough + 1);
}

TEST_F(TunerTest, NewTrialsForgetNothingBeforeTheyAreMeasured) {
  EXPECT_EQ(choose(), kRing);
  measure({{kRing, 50'000}, {kCentral, 20'000}, {tree(1), 60'000}, {tree(2), 60'000}});
  ASSERT_NE(operations_until(kCentral), -1);
  for (uint64_t i = 0; i < 2 * Tuner::kTrialsAgain; ++i) {
    ASSERT_EQ(choose(), kCentral) << i;
    observe(kCentral, 20'000);
  }
  EXPECT_EQ(row(kRing).measured_us, 50'000);
  for (uint64_t i = 1; i < Tuner::kEnough; ++i) observe(kRing, 40'000);
  EXPECT_EQ(row(kRing).measured_us, 50'000);
  observe(kRing, 40'000);
  EXPECT_EQ(row(kRing).measured_us, 40'000);
}

TEST_F(TunerTest, TrialsThatCannotBeMeasuredEnd) {
  uint64_t tried = 0;
  for (int i = 0; i < 1000; ++i) tried += choose(true) != kRing;
  EXPECT_LE(tried, 3 * 2 * Tuner::kEnough);
}

TEST_F(TunerTest, DriftForgetsWhatWasMeasuredAndAsksForProbes) {
  choose();
  measure({{kRing, 10'000}, {kCentral, 12'000}});
  EXPECT_FALSE(tuner_.take_probe_request());
  for (int i = 0; i < 2 * Tuner::kDrift; ++i) observe(kRing, 40'000);
  EXPECT_TRUE(tuner_.take_probe_request());
  EXPECT_FALSE(tuner_.take_probe_request());
  EXPECT_EQ(row(kCentral).samples, 0u);
  EXPECT_EQ(row(kRing).measured_us, 40'000);
}

TEST_F(TunerTest, SlowLinksChangeThePredictionAndWithItTheChoice) {
  bytes_ = 64 * 1024;
  for (const char* to : {"b", "c", "d"}) tuner_.set_link("a", to, {5, 0.0001});
  EXPECT_EQ(tuner_.typical_link(), (LinkCost{5, 0.0001}));
  EXPECT_EQ(tuner_.link("c", "d"), tuner_.typical_link());
  const double before = (choose(), row(kRing).predicted_us);
  tuner_.set_link("b", "c", {5, 0.05});  // The ring goes there, the star does not.
  EXPECT_EQ(operations_until(kCentral), Tuner::kAgreements);
  EXPECT_GT(row(kRing).predicted_us, 10 * before);
  EXPECT_EQ(tuner_.link("b", "c").byte_us, 0.05);
}

TEST_F(TunerTest, SharedMachinesFavourFewMessages) {
  bytes_ = 32 * 1024;
  for (const char* to : {"b", "c", "d"}) tuner_.set_link("a", to, {1, 0.0002});
  EXPECT_EQ(choose(), kRing);
  for (const char* host : {"a", "b", "c"}) tuner_.set_machine(host, 77, 1);
  tuner_.set_machine("d", 78, 1);
  EXPECT_NE(operations_until(kCentral), -1);
}

TEST_F(TunerTest, AFigureThatIsMissingLeavesTheOther) {
  tuner_.set_link("a", "b", {7, 0});
  tuner_.set_link("a", "b", {0, 0.002});
  EXPECT_EQ(tuner_.links().at({"a", "b"}), (LinkFigures{7, 0.002}));
}

TEST_F(TunerTest, AStrategyThatCallsNameIsLearntToo) {
  choose();
  measure({{kRing, 50'000}, {tree(3), 50'000}, {tree(7), 10'000}});
  EXPECT_EQ(operations_until(tree(7)), Tuner::kAgreements);
}

TEST_F(TunerTest, WhatIsToStayWholeIsNotSplitWhateverItIsMeasured) {
  const Tuner::Case whole{party_, kCollective, bytes_, true};
  const Strategy first = tuner_.choose(whole, false);
  EXPECT_NE(first, kRing);
  for (int i = 0; i < 100; ++i) {
    tuner_.observe(whole, first, 10'000);
    tuner_.observe(whole, kRing, 10);
    EXPECT_EQ(tuner_.choose(whole, true).kind == StrategyKind::ring, false);
  }
  EXPECT_EQ(choose(), kRing);
}

}  // namespace
}  // namespace tutti

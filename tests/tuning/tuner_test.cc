// The tuner's choices by predictions, and by measurements that the test passes.
#include "daemon/tuning/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tuning/strategies.h"

namespace tutti {
namespace {

class TunerTest : public ::testing::Test {
 protected:
  static constexpr auto kCollective = Collective::all_reduce;

  Strategy choose() { return tuner_.choose({host_set_, kCollective, bytes_}); }
  void observe(const Strategy& strategy, double us) {
    tuner_.observe({host_set_, kCollective, bytes_}, strategy, us);
  }
  // Observes enough operations of each strategy, in turn.
  void measure(const std::vector<std::pair<Strategy, double>>& times) {
    for (uint64_t i = 0; i <= Tuner::kEnough; ++i)
      for (const auto& [strategy, us] : times) observe(strategy, us);
  }
  // The number of operations until the choice is `strategy`; -1: more than a thousand.
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
  const int host_set_ = tuner_.host_set({{"a", "b", "c", "d"}, 4});
  uint64_t bytes_ = 64 * kMiB;
};

TEST_F(TunerTest, BeginsWithThePrediction) {
  EXPECT_EQ(choose(), kRing);
  bytes_ = 4;
  EXPECT_EQ(choose(), kCentral);
}

TEST_F(TunerTest, OnePartyHasOneNumber) {
  EXPECT_EQ(tuner_.host_set({{"a", "b", "c", "d"}, 4}), host_set_);
  EXPECT_NE(tuner_.host_set({{"a", "b", "c", "d"}, 8}), host_set_);
  EXPECT_NE(tuner_.host_set({{"b", "a", "c", "d"}, 4}), host_set_);
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
  const Workload work{kCollective, bytes_, 4, 4};
  const double less = predict(work, traffic_of(work, kRing), LinkCost{}).us;
  observe(kRing, 2 * less);
  observe(kRing, 2 * less);
  EXPECT_NEAR(row(kRing).measured_us, 2 * full, 1);
  EXPECT_EQ(row(kRing).bytes, 64 * kMiB);
}

TEST_F(TunerTest, RunsNothingOnlyToMeasureIt) {
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(choose(), kRing);
    observe(kRing, 20'000);
  }
  EXPECT_EQ(row(kCentral).samples, 0u);
}

// The prediction is corrected by what the current strategy's times show.
TEST_F(TunerTest, ASlowCurrentStrategyMakesNoPredictionLookBetter) {
  EXPECT_EQ(choose(), kRing);
  measure({{kRing, 1e6}});
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(choose(), kRing);
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

}  // namespace
}  // namespace tutti

// The leader's adviser: what it passes to the tuner, when it probes, and what it recommends.
#include "daemon/group/adviser.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti {
namespace {

const TimePoint kStart{std::chrono::hours(1)};

class AdviserTest : public ::testing::Test {
 protected:
  static constexpr Strategy kCentral{StrategyKind::centralized};
  static constexpr Strategy kRing{StrategyKind::ring};

  uint64_t samples(const Strategy& strategy) const {
    for (const Tuner::Row& row : tuner_.rows())
      if (row.strategy == strategy) return row.samples;
    return ~uint64_t{0};
  }
  // One operation by kRing that took that long.
  void run(uint64_t seq, uint32_t us) {
    adviser_.on_started({0, seq}, group_, kSignature, {kCentral, kRing});
    adviser_.on_ended({0, seq}, us);
  }
  std::optional<Strategy> recommend(const Strategy& used) {
    return adviser_.recommend(0, group_, kSignature, used);
  }

  const Signature kSignature{Collective::all_reduce, Dtype::f32, Op::sum, 1 << 20, 0, {}};
  const std::vector<Host> hosts_ = {{"a", "", {0, 1}}, {"b", "", {2}}, {"c", "", {3}}};
  const Communicator group_{{0, 1, 2, 3}, hosts_, 0};
  Tuner tuner_;
  std::vector<std::pair<int, v1::Probe>> asked_;
  Adviser adviser_{tuner_, hosts_, 0, 1000,
                   [this](int host, const v1::Probe& probe) { asked_.emplace_back(host, probe); }};
};

TEST_F(AdviserTest, RecommendsABetterStrategyOnceUntilItIsInForce) {
  const Strategy slow{StrategyKind::tree, 1};
  const std::optional<Strategy> better = recommend(slow);
  ASSERT_TRUE(better.has_value());
  EXPECT_NE(*better, slow);
  EXPECT_NE(better->kind, StrategyKind::automatic);
  EXPECT_EQ(recommend(slow), std::nullopt) << "it is on its way";
  EXPECT_EQ(recommend(*better), std::nullopt) << "it is in force";
  EXPECT_TRUE(recommend(slow) == std::nullopt);
  const Communicator alone({0, 1}, hosts_, 0);
  EXPECT_EQ(adviser_.recommend(5, alone, kSignature, kCentral), std::nullopt);
}

TEST_F(AdviserTest, RecordsTheTimeMeasuredOnTheLeadersHost) {
  run(0, 10);  // The first of a strategy counts for nothing.
  run(1, 300);
  EXPECT_EQ(samples(kRing), 1u);
  for (const Tuner::Row& row : tuner_.rows())
    EXPECT_EQ(row.measured_us, row.strategy == kRing ? 300 : 0);
}

TEST_F(AdviserTest, IgnoresAnOperationWithoutAMeasuredTime) {
  run(0, 10);
  run(1, 0);
  adviser_.on_ended({0, 0}, 50);  // Of another operation.
  EXPECT_EQ(samples(kRing), 0u);
}

TEST_F(AdviserTest, ProbesAHostOnceAndLearnsBothDirections) {
  adviser_.probe_if_due(2, kStart);
  adviser_.probe_if_due(2, kStart);
  TimePoint now = kStart;
  for (size_t i = 0; i < Prober::kSmall + Prober::kLarge; ++i) {
    ASSERT_EQ(asked_.size(), i + 1);
    EXPECT_EQ(asked_.back().first, 2);
    EXPECT_EQ(asked_.back().second.padding().size(), i < Prober::kSmall ? 0u : 1000u);
    now += Micros(i < Prober::kSmall ? 40 : 90);
    adviser_.on_answer(2, asked_.back().second, now);
  }
  EXPECT_EQ(asked_.size(), static_cast<size_t>(Prober::kSmall + Prober::kLarge));
  EXPECT_EQ(tuner_.links().at({"a", "c"}), (LinkFigures{20, 0.05}));
  EXPECT_EQ(tuner_.links().at({"c", "a"}), (LinkFigures{20, 0.05}));
}

TEST_F(AdviserTest, AProbeReplacesAProbeButNotARateOfData) {
  TimePoint now = kStart;
  const auto probe = [&](int large_us) {
    now += 2 * Prober::kAgainAfter;
    asked_.clear();
    adviser_.probe_if_due(2, now);
    for (int i = 0; i < Prober::kSmall + Prober::kLarge; ++i) {
      now += Micros(i < Prober::kSmall ? 40 : large_us);
      adviser_.on_answer(2, v1::Probe(asked_.back().second), now);
    }
    return tuner_.links().at({"a", "c"}).byte_us;
  };
  EXPECT_EQ(probe(90), 0.05);
  EXPECT_EQ(probe(140), 0.1);
  v1::Rates rates;
  rates.add_rates()->set_byte_us(0.002);  // From host a.
  EXPECT_TRUE(adviser_.on_rates(2, rates));
  EXPECT_EQ(probe(240), 0.002);
  EXPECT_EQ(tuner_.links().at({"c", "a"}).byte_us, 0.2);
}

TEST_F(AdviserTest, LearnsWhichHostsShareAMachine) {
  const Strategy best = recommend(kRing).value_or(kRing);
  const double alone = tuner_.rows().back().predicted_us;
  tuner_.set_machine("a", 5, 1);
  adviser_.probe_if_due(1, kStart);
  v1::Probe answer = asked_.back().second;
  answer.set_machine(5);
  answer.set_cores(1);
  adviser_.on_answer(2, answer, kStart + Micros(9));  // Nobody asked that one.
  recommend(best);
  EXPECT_EQ(tuner_.rows().back().predicted_us, alone);
  adviser_.on_answer(1, answer, kStart + Micros(9));
  recommend(best);
  EXPECT_GT(tuner_.rows().back().predicted_us, alone);
}

TEST_F(AdviserTest, RecommendsNothingForABarrier) {
  EXPECT_EQ(adviser_.recommend(0, group_, Signature(), kCentral), std::nullopt);
  EXPECT_TRUE(tuner_.rows().empty());
}

TEST_F(AdviserTest, IgnoresImplausibleRates) {
  v1::Rates rates;
  v1::Rate& rate = *rates.add_rates();
  rate.set_from(1);
  rate.set_byte_us(0.002);
  EXPECT_TRUE(adviser_.on_rates(2, rates));
  EXPECT_EQ(tuner_.links().at({"b", "c"}).byte_us, 0.002);
  rate.set_from(3);
  EXPECT_FALSE(adviser_.on_rates(2, rates));
  rate.set_from(1);
  for (const double bad : {0.0, -1.0, 1e9, std::nan("")}) {
    rate.set_byte_us(bad);
    EXPECT_TRUE(adviser_.on_rates(2, rates)) << bad;
    EXPECT_EQ(tuner_.links().at({"b", "c"}).byte_us, 0.002) << bad;
  }
}

}  // namespace
}  // namespace tutti

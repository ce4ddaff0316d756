// The leader's part in measuring: what it passes to the tuner, when it probes, and what it
// recommends.
#include "daemon/group/measuring.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti {
namespace {

const TimePoint kStart{std::chrono::hours(1)};

class MeasuringTest : public ::testing::Test {
 protected:
  static constexpr Strategy kCentral{StrategyKind::centralized};
  static constexpr Strategy kRing{StrategyKind::ring};

  uint64_t samples(const Strategy& strategy) const {
    for (const Tuner::Row& row : tuner_->rows())
      if (row.strategy == strategy) return row.samples;
    return ~uint64_t{0};
  }
  // One operation by kRing that took that long.
  void run(uint64_t number, Micros time) {
    start(group_, kSignature, kRing, kRing, kStart, number);
    measuring_.on_started({0, number}, kStart);
    measuring_.on_ended({0, number}, kStart + time);
  }
  std::optional<Strategy> recommend(const Strategy& used) {
    return start(group_, kSignature, used, {StrategyKind::automatic}, kStart);
  }
  std::optional<Strategy> start(const Communicator& group, const Signature& signature,
                                const Strategy& used, const Strategy& asked, TimePoint now,
                                uint64_t number = 0) {
    return measuring_.recommend({group.size() == 4 ? 0u : 5u, number}, group, signature,
                                {kCentral, used}, {kCentral, asked}, now);
  }
  // An operation with this host begins.
  void start_with(int host, TimePoint now) {
    const Communicator pair({0, host + 1}, hosts_, 0);
    start(pair, kSignature, kRing, kRing, now);
  }
  void answer(int host, TimePoint now) {
    const v1::Probe probe = asked_.back().second;
    EXPECT_TRUE(measuring_.on_probe(host, probe, now).ok());
  }

  const Signature kSignature{Collective::all_reduce, Dtype::f32, Op::sum, 1 << 20, 0, {}};
  const std::vector<Host> hosts_ = {{"a", "", {0, 1}}, {"b", "", {2}}, {"c", "", {3}}};
  const Communicator group_{{0, 1, 2, 3}, hosts_, 0};
  const std::shared_ptr<Tuner> tuner_ = std::make_shared<Tuner>();
  std::vector<std::pair<int, v1::Probe>> asked_;
  RateMeter rates_{hosts_.size()};
  Measuring measuring_{tuner_,
                       hosts_,
                       0,
                       1000,
                       rates_,
                       [this](int host, const v1::Control& sent) {
                         asked_.emplace_back(host, sent.probe()); }};
};

TEST_F(MeasuringTest, RecommendsABetterStrategyOnceUntilItIsInForce) {
  const Strategy slow{StrategyKind::tree, 1};
  const std::optional<Strategy> better = recommend(slow);
  ASSERT_TRUE(better.has_value());
  EXPECT_NE(*better, slow);
  EXPECT_NE(better->kind, StrategyKind::automatic);
  EXPECT_EQ(recommend(slow), std::nullopt) << "it is on its way";
  EXPECT_EQ(recommend(*better), std::nullopt) << "it is in force";
  EXPECT_TRUE(recommend(slow) == std::nullopt);
  const Communicator alone({0, 1}, hosts_, 0);
  EXPECT_EQ(start(alone, kSignature, kCentral, {StrategyKind::automatic}, kStart), std::nullopt);
}

TEST_F(MeasuringTest, RecordsTheTimeMeasuredOnTheLeadersHost) {
  run(0, Micros(10));  // The first of a strategy counts for nothing.
  run(1, Micros(300));
  EXPECT_EQ(samples(kRing), 1u);
  for (const Tuner::Row& row : tuner_->rows())
    EXPECT_EQ(row.measured_us, row.strategy == kRing ? 300 : 0);
}

TEST_F(MeasuringTest, ReproducibleOperationsGoByTheLinksAndAreNotMeasured) {
  Signature signature = kSignature;
  signature.reproducible = true;
  signature.count = 16 << 10;  // 64 KiB; those of three ranks are too large for a raw plan.
  const Communicator lone({0, 2, 3}, hosts_, 0);
  const auto recommended = [&](const Strategy& used) {
    const auto better = start(lone, signature, used, {StrategyKind::automatic}, kStart);
    measuring_.on_started({5, 0}, kStart);
    measuring_.on_ended({5, 0}, kStart + Micros(10));
    return better;
  };
  const auto set_links = [&](double byte_us) {
    for (const auto& [from, to] : {std::pair{"a", "b"}, {"b", "a"}, {"a", "c"}, {"c", "a"}})
      tuner_->set_link(from, to, {60, byte_us, true});
  };
  signature.count = 17 << 10;
  EXPECT_EQ(recommended(kCentral), std::nullopt) << "large ones go by a ring, whatever the links";
  EXPECT_TRUE(tuner_->rows().empty());
  signature.count = 16 << 10;
  set_links(0.0001);  // 10 GB/s.
  for (int i = 0; i < 2 * Tuner::kAgreements; ++i)
    EXPECT_EQ(recommended(kCentral), std::nullopt) << "rounds cost more than bytes";
  set_links(0.01);  // 100 MB/s.
  std::optional<Strategy> better;
  for (int i = 0; i < 2 * Tuner::kAgreements && !better; ++i) better = recommended(kCentral);
  EXPECT_EQ(better, kRing);
  for (const Tuner::Row& row : tuner_->rows()) EXPECT_EQ(row.samples, 0u);
}

TEST_F(MeasuringTest, IgnoresAnOperationWithoutAMeasuredTime) {
  run(0, Micros(10));
  measuring_.on_started({3, 0}, kStart);  // While others run there is none.
  run(1, Micros(300));
  measuring_.on_ended({3, 0}, kStart);
  start(group_, kSignature, kRing, kRing, kStart, 2);
  measuring_.on_started({0, 9}, kStart);
  measuring_.on_ended({0, 9}, kStart + Micros(50));  // Of another operation.
  EXPECT_EQ(samples(kRing), 0u);
}

TEST_F(MeasuringTest, ProbesAHostOnceAndLearnsBothDirections) {
  start_with(2, kStart);
  start_with(2, kStart);
  TimePoint now = kStart;
  for (size_t i = 0; i < Prober::kSmall + Prober::kLarge; ++i) {
    ASSERT_EQ(asked_.size(), i + 1);
    EXPECT_EQ(asked_.back().first, 2);
    EXPECT_EQ(asked_.back().second.padding().size(), i < Prober::kSmall ? 0u : 1000u);
    now += Micros(i < Prober::kSmall ? 40 : 90);
    answer(2, now);
  }
  EXPECT_EQ(asked_.size(), static_cast<size_t>(Prober::kSmall + Prober::kLarge));
  EXPECT_EQ(tuner_->links().at({"a", "c"}), (LinkFigures{20, 0.05}));
  EXPECT_EQ(tuner_->links().at({"c", "a"}), (LinkFigures{20, 0.05}));
}

TEST_F(MeasuringTest, AProbeReplacesAProbeButNotARateOfData) {
  TimePoint now = kStart;
  const auto probe = [&](int large_us) {
    now += 2 * Prober::kAgainAfter;
    asked_.clear();
    start_with(2, now);
    for (int i = 0; i < Prober::kSmall + Prober::kLarge; ++i) {
      now += Micros(i < Prober::kSmall ? 40 : large_us);
      answer(2, now);
    }
    return tuner_->links().at({"a", "c"}).byte_us;
  };
  EXPECT_EQ(probe(90), 0.05);
  EXPECT_EQ(probe(140), 0.1);
  v1::Rates rates;
  rates.add_rates()->set_byte_us(0.002);  // From host a.
  EXPECT_TRUE(measuring_.on_rates(2, rates).ok());
  EXPECT_EQ(probe(240), 0.002);
  EXPECT_EQ(tuner_->links().at({"c", "a"}).byte_us, 0.2);
}

TEST_F(MeasuringTest, LearnsWhichHostsShareAMachine) {
  const Strategy best = recommend(kRing).value_or(kRing);
  const double alone = tuner_->rows().back().predicted_us;
  tuner_->set_machine("a", 5, 1);
  v1::Probe said = asked_.front().second;
  said.set_machine(5);
  said.set_cores(1);
  EXPECT_TRUE(measuring_.on_probe(0, said, kStart + Micros(9)).ok());  // Nobody asked that one.
  recommend(best);
  EXPECT_EQ(tuner_->rows().back().predicted_us, alone);
  EXPECT_TRUE(measuring_.on_probe(1, said, kStart + Micros(9)).ok());
  recommend(best);
  EXPECT_GT(tuner_->rows().back().predicted_us, alone);
}

TEST_F(MeasuringTest, RecommendsNothingForABarrier) {
  EXPECT_EQ(start(group_, Signature(), kCentral, {StrategyKind::automatic}, kStart), std::nullopt);
  EXPECT_TRUE(tuner_->rows().empty());
}

TEST_F(MeasuringTest, IgnoresImplausibleRates) {
  v1::Rates rates;
  v1::Rate& rate = *rates.add_rates();
  rate.set_from(1);
  rate.set_byte_us(0.002);
  EXPECT_TRUE(measuring_.on_rates(2, rates).ok());
  EXPECT_EQ(tuner_->links().at({"b", "c"}).byte_us, 0.002);
  rate.set_from(3);
  EXPECT_EQ(measuring_.on_rates(2, rates).code(), Code::data_loss);
  rate.set_from(1);
  for (const double bad : {0.0, -1.0, 1e9, std::nan("")}) {
    rate.set_byte_us(bad);
    EXPECT_TRUE(measuring_.on_rates(2, rates).ok()) << bad;
    EXPECT_EQ(tuner_->links().at({"b", "c"}).byte_us, 0.002) << bad;
  }
}

}  // namespace
}  // namespace tutti

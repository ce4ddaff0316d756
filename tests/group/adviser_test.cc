// What is measured while operations run, with times as numbers.
#include "daemon/group/adviser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Micros = std::chrono::microseconds;

const TimePoint kStart{std::chrono::hours(1)};

TEST(OpClockTest, AnOperationThatRanAloneHasATime) {
  OpClock clock;
  clock.started({0, 4}, kStart);
  EXPECT_EQ(clock.take_us({0, 4}), 0u);
  clock.ended({0, 4}, kStart + Micros(120));
  EXPECT_EQ(clock.take_us({0, 3}), 0u);
  EXPECT_EQ(clock.take_us({1, 4}), 0u);
  EXPECT_EQ(clock.take_us({0, 4}), 120u);
  EXPECT_EQ(clock.take_us({0, 4}), 0u);
}

TEST(OpClockTest, OperationsThatOverlapHaveNone) {
  OpClock clock;
  clock.started({0, 0}, kStart);
  clock.started({7, 0}, kStart + Micros(10));
  clock.ended({0, 0}, kStart + Micros(100));
  clock.ended({7, 0}, kStart + Micros(110));
  EXPECT_EQ(clock.take_us({0, 0}), 0u);
  EXPECT_EQ(clock.take_us({7, 0}), 0u);
  clock.started({0, 1}, kStart + Micros(120));
  clock.ended({0, 1}, kStart + Micros(150));
  EXPECT_EQ(clock.take_us({0, 1}), 30u);
}

class RateMeterTest : public ::testing::Test {
 protected:
  // An operation's frames of half a MiB, one every `us`.
  void frames(int count, int us) {
    ++seq_;
    for (int i = 0; i < count; ++i) {
      meter_.frame(1, {1, group_, seq_}, 1 << 19, now_);
      now_ += Micros(us);
    }
  }
  double us_a_frame() const { return meter_.byte_us(1) * (1 << 19); }

  RateMeter meter_{3};
  TimePoint now_ = kStart;
  uint32_t group_ = 0;
  uint64_t seq_ = 0;
};

TEST_F(RateMeterTest, MeasuresFramesThatFollowEachOther) {
  frames(2, 500);
  EXPECT_EQ(meter_.byte_us(1), 0);  // The first frame's start is not known, one more is too few.
  frames(3, 500);
  EXPECT_NEAR(us_a_frame(), 500, 1);
  EXPECT_EQ(meter_.byte_us(2), 0);
}

TEST_F(RateMeterTest, TheTimeBetweenOperationsDoesNotCount) {
  frames(3, 500);
  for (int i = 0; i < 50; ++i) {
    now_ += Millis(20);
    frames(3, 500);
  }
  for (int i = 0; i < 50; ++i) {
    now_ += Millis(20);
    frames(1, 500);
  }
  EXPECT_NEAR(us_a_frame(), 500, 1);
}

TEST_F(RateMeterTest, AnotherGroupsOperationOfTheSameNumberIsAnother) {
  frames(5, 500);
  now_ += Millis(3'600'000);
  --seq_;
  group_ = 7;
  frames(5, 500);
  EXPECT_NEAR(us_a_frame(), 500, 1);
}

TEST_F(RateMeterTest, IsQuickToBelieveFasterAndSlowToBelieveSlower) {
  frames(41, 500);
  frames(4, 2000);
  EXPECT_LT(us_a_frame(), 700);
  frames(400, 2000);
  EXPECT_NEAR(us_a_frame(), 2000, 20);
  frames(20, 500);
  EXPECT_LT(us_a_frame(), 510);
}

TEST_F(RateMeterTest, TellsEachNewsOnceAndNotTooOften) {
  EXPECT_THAT(meter_.take_news(now_), IsEmpty());
  frames(3, 500);
  EXPECT_THAT(meter_.take_news(now_), ElementsAre(1));
  frames(20, 500);
  EXPECT_THAT(meter_.take_news(now_ + Millis(1000)), IsEmpty());
  frames(20, 100);
  EXPECT_THAT(meter_.take_news(kStart + Millis(1)), IsEmpty());
  EXPECT_THAT(meter_.take_news(now_ + RateMeter::kNewsEvery), ElementsAre(1));
}

TEST(ProberTest, TheLeastOfEachKindCounts) {
  Prober prober(2);
  TimePoint now = kStart;
  EXPECT_TRUE(prober.is_due(1, now));
  std::optional<Prober::Question> question = prober.begin(1, 100'000, now);
  std::vector<uint64_t> paddings;
  std::optional<Prober::Findings> findings;
  for (const int us : {90, 60, 80, 70, 90, 90, 90, 90, 200, 160, 200, 200, 200, 200}) {
    ASSERT_TRUE(question.has_value());
    EXPECT_FALSE(prober.begin(1, 0, now).has_value());  // One at a time.
    paddings.push_back(question->padding);
    now += Micros(us);
    const Prober::Next next = prober.answered(1, question->number, now);
    question = next.question;
    findings = next.findings;
  }
  EXPECT_THAT(paddings, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 100'000, 100'000, 100'000, 100'000,
                                    100'000, 100'000));
  ASSERT_TRUE(findings.has_value());
  EXPECT_DOUBLE_EQ(findings->message_us, 30);
  EXPECT_DOUBLE_EQ(findings->byte_us, 0.001);
  EXPECT_FALSE(prober.is_due(1, now + Millis(1000)));
  EXPECT_TRUE(prober.is_due(1, now + 2 * Prober::kAgainAfter));
}

TEST(ProberTest, AnswersThatWereNotAwaitedAreNone) {
  Prober prober(2);
  EXPECT_FALSE(prober.answered(1, 0, kStart).question.has_value());
  const auto question = prober.begin(1, 0, kStart);
  EXPECT_FALSE(prober.answered(1, question->number + 1, kStart).question.has_value());
  EXPECT_TRUE(prober.answered(1, question->number, kStart).question.has_value());
  EXPECT_FALSE(prober.answered(1, question->number, kStart).question.has_value());
}

TEST(KeepsBits, WhereNothingIsRoundedOrTwoAreAdded) {
  Signature signature{Collective::all_reduce, Dtype::f32, Op::sum, 1, 0, {}};
  EXPECT_TRUE(keeps_bits(signature, 2));
  EXPECT_FALSE(keeps_bits(signature, 3));
  signature.op = Op::max;
  EXPECT_FALSE(keeps_bits(signature, 2));
  signature.dtype = Dtype::i32;
  EXPECT_TRUE(keeps_bits(signature, 3));
  signature = {Collective::all_gather, Dtype::f32, Op::sum, 1, 0, {}};
  EXPECT_TRUE(keeps_bits(signature, 64));
}

// ---- The leader ----

class AdviserTest : public ::testing::Test {
 protected:
  static constexpr Strategy kCentral{StrategyKind::centralized};
  static constexpr Strategy kRing{StrategyKind::ring};

  uint64_t samples(const Strategy& strategy) const {
    for (const Tuner::Row& row : tuner_.rows())
      if (row.strategy == strategy) return row.samples;
    return ~uint64_t{0};
  }
  // One operation, by kRing, and how long it took here.
  void run(uint64_t seq, uint32_t us) {
    adviser_.started(0, seq, group_, kSignature, {kCentral, kRing});
    adviser_.took(0, seq, us);
  }
  std::optional<Strategy> recommend(const Strategy& used) {
    return adviser_.recommend(0, group_, kSignature, used);
  }

  const Signature kSignature{Collective::all_reduce, Dtype::f32, Op::sum, 1 << 20, 0, {}};
  const std::vector<Host> hosts_ = {{"a", "", {0, 1}}, {"b", "", {2}}, {"c", "", {3}}};
  const Communicator group_{{0, 1, 2, 3}, hosts_, 0};
  Tuner tuner_;
  std::vector<std::pair<int, v1::Probe>> asked_;
  Adviser adviser_{tuner_, hosts_, 0, {false, 1000}, [this](int host, const v1::Probe& probe) {
                     asked_.emplace_back(host, probe);
                   }};
};

TEST_F(AdviserTest, WishesForWhatIsBetterOnceUntilItIsInForce) {
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

TEST_F(AdviserTest, AnOperationsTimeIsTheOneMeasuredHere) {
  run(0, 10);  // The first of a strategy counts for nothing.
  run(1, 300);
  EXPECT_EQ(samples(kRing), 1u);
  for (const Tuner::Row& row : tuner_.rows())
    EXPECT_EQ(row.measured_us, row.strategy == kRing ? 300 : 0);
}

TEST_F(AdviserTest, ATimeThatIsNotKnownIsNone) {
  run(0, 10);
  run(1, 0);
  adviser_.took(0, 0, 50);  // Of another operation.
  EXPECT_EQ(samples(kRing), 0u);
}

TEST_F(AdviserTest, AsksAHostOnceItIsHeardFromAndLearnsTheWayThereAndBack) {
  adviser_.heard_from(2, kStart);
  adviser_.heard_from(2, kStart);
  TimePoint now = kStart;
  for (size_t i = 0; i < Prober::kSmall + Prober::kLarge; ++i) {
    ASSERT_EQ(asked_.size(), i + 1);
    EXPECT_EQ(asked_.back().first, 2);
    EXPECT_EQ(asked_.back().second.padding().size(), i < Prober::kSmall ? 0u : 1000u);
    now += Micros(i < Prober::kSmall ? 40 : 90);
    adviser_.answered(2, asked_.back().second, now);
  }
  EXPECT_EQ(asked_.size(), static_cast<size_t>(Prober::kSmall + Prober::kLarge));
  EXPECT_EQ(tuner_.links().at({"a", "c"}), (LinkFigures{20, 0.05}));
  EXPECT_EQ(tuner_.links().at({"c", "a"}), (LinkFigures{20, 0.05}));
}

TEST_F(AdviserTest, AProbeCorrectsAProbeButNotWhatWasMeasuredOfData) {
  TimePoint now = kStart;
  const auto probe = [&](int large_us) {
    now += 2 * Prober::kAgainAfter;
    asked_.clear();
    adviser_.heard_from(2, now);
    for (int i = 0; i < Prober::kSmall + Prober::kLarge; ++i) {
      now += Micros(i < Prober::kSmall ? 40 : large_us);
      adviser_.answered(2, v1::Probe(asked_.back().second), now);
    }
    return tuner_.links().at({"a", "c"}).byte_us;
  };
  EXPECT_EQ(probe(90), 0.05);
  EXPECT_EQ(probe(140), 0.1);
  v1::Rates rates;
  rates.add_rates()->set_byte_us(0.002);  // From host a.
  EXPECT_TRUE(adviser_.learn(2, rates));
  EXPECT_EQ(probe(240), 0.002);
  EXPECT_EQ(tuner_.links().at({"c", "a"}).byte_us, 0.2);
}

TEST_F(AdviserTest, ADriftIsFollowedByProbesOfBytesToo) {
  uint64_t seq = 0;
  for (int i = 0; i < 20; ++i, ++seq) run(seq, 100);
  adviser_.recommend(0, group_, kSignature, kRing);
  for (int i = 0; i < 40 && asked_.empty(); ++i, ++seq) run(seq, 900);
  ASSERT_EQ(asked_.size(), 2u);
  for (int i = 0; i < Prober::kSmall; ++i)
    adviser_.answered(1, v1::Probe(i == 0 ? asked_[0].second : asked_.back().second), kStart);
  EXPECT_EQ(asked_.back().second.padding().size(), 1000u);
}

TEST_F(AdviserTest, LearnsWhoSharesAMachine) {
  const Strategy best = recommend(kRing).value_or(kRing);
  const double alone = tuner_.rows().back().predicted_us;
  tuner_.set_machine("a", 5, 1);
  adviser_.heard_from(1, kStart);
  v1::Probe answer = asked_.back().second;
  answer.set_machine(5);
  answer.set_cores(1);
  adviser_.answered(2, answer, kStart + Micros(9));  // Nobody asked that one.
  recommend(best);
  EXPECT_EQ(tuner_.rows().back().predicted_us, alone);
  adviser_.answered(1, answer, kStart + Micros(9));
  recommend(best);
  EXPECT_GT(tuner_.rows().back().predicted_us, alone);
}

TEST_F(AdviserTest, ABarrierHasNothingToChoose) {
  EXPECT_EQ(adviser_.recommend(0, group_, Signature(), kCentral), std::nullopt);
  EXPECT_TRUE(tuner_.rows().empty());
}

TEST_F(AdviserTest, LearnsRatesThatMakeSense) {
  v1::Rates rates;
  v1::Rate& rate = *rates.add_rates();
  rate.set_from(1);
  rate.set_byte_us(0.002);
  EXPECT_TRUE(adviser_.learn(2, rates));
  EXPECT_EQ(tuner_.links().at({"b", "c"}).byte_us, 0.002);
  rate.set_from(3);
  EXPECT_FALSE(adviser_.learn(2, rates));
  rate.set_from(1);
  for (const double bad : {0.0, -1.0, 1e9, std::nan("")}) {
    rate.set_byte_us(bad);
    EXPECT_TRUE(adviser_.learn(2, rates)) << bad;
    EXPECT_EQ(tuner_.links().at({"b", "c"}).byte_us, 0.002) << bad;
  }
}

}  // namespace
}  // namespace tutti

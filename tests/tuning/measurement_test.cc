// Durations of operations, rates of data and delays of probes, measured from times that the test
// passes.
#include "daemon/tuning/measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Micros = std::chrono::microseconds;

const TimePoint kStart{std::chrono::hours(1)};

TEST(OpClockTest, AnOperationThatRanAloneHasATime) {
  OpClock clock;
  clock.started({0, 4}, kStart);
  EXPECT_EQ(clock.ended({0, 3}, kStart + Micros(100)), 0u);
  EXPECT_EQ(clock.ended({1, 4}, kStart + Micros(100)), 0u);
  EXPECT_EQ(clock.ended({0, 4}, kStart + Micros(120)), 120u);
  EXPECT_EQ(clock.ended({0, 4}, kStart + Micros(130)), 0u);
}

TEST(OpClockTest, OperationsThatOverlapHaveNone) {
  OpClock clock;
  clock.started({0, 0}, kStart);
  clock.started({7, 0}, kStart + Micros(10));
  EXPECT_EQ(clock.ended({0, 0}, kStart + Micros(100)), 0u);
  EXPECT_EQ(clock.ended({7, 0}, kStart + Micros(110)), 0u);
  clock.started({0, 1}, kStart + Micros(120));
  EXPECT_EQ(clock.ended({0, 1}, kStart + Micros(150)), 30u);
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

// As links with data streams deliver them.
TEST_F(RateMeterTest, FramesThatComeTogetherAreNotFaster) {
  for (int burst = 0; burst < 20; ++burst) {
    frames(4, 0);
    --seq_;  // They are of one operation.
    now_ += Micros(2000);
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
  EXPECT_THAT(meter_.take_changed(now_), IsEmpty());
  frames(3, 500);
  EXPECT_THAT(meter_.take_changed(now_), ElementsAre(1));
  frames(20, 500);
  EXPECT_THAT(meter_.take_changed(now_ + Millis(1000)), IsEmpty());
  frames(20, 100);
  EXPECT_THAT(meter_.take_changed(kStart + Millis(1)), IsEmpty());
  EXPECT_THAT(meter_.take_changed(now_ + RateMeter::kReportEvery), ElementsAre(1));
}

TEST(ProberTest, TheLeastOfEachKindCounts) {
  Prober prober(2);
  TimePoint now = kStart;
  EXPECT_TRUE(prober.is_due(1, now));
  std::optional<Prober::Question> question = prober.begin(1, 100'000, now);
  std::vector<uint64_t> paddings;
  std::optional<LinkFigures> figures;
  for (const int us : {90, 60, 80, 70, 90, 90, 90, 90, 200, 160, 200, 200, 200, 200}) {
    ASSERT_TRUE(question.has_value());
    EXPECT_FALSE(prober.begin(1, 0, now).has_value());  // One at a time.
    paddings.push_back(question->padding);
    now += Micros(us);
    const Prober::Next next = prober.answered(1, question->number, now);
    question = next.question;
    figures = next.figures;
  }
  EXPECT_THAT(paddings, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 100'000, 100'000, 100'000, 100'000,
                                    100'000, 100'000));
  ASSERT_TRUE(figures.has_value());
  EXPECT_DOUBLE_EQ(figures->message_us, 30);
  EXPECT_DOUBLE_EQ(figures->byte_us, 0.001);
  EXPECT_FALSE(prober.is_due(1, now + Millis(1000)));
  EXPECT_TRUE(prober.is_due(1, now + 2 * Prober::kAgainAfter));
}

TEST(ProberTest, ASeriesThatFoundLargeQuestionsNoSlowerIsRunAgain) {
  Prober prober(2);
  TimePoint now = kStart;
  const auto run_series = [&](int large_us) {
    std::optional<Prober::Question> question = prober.begin(1, 100'000, now);
    Prober::Next next;
    for (; question.has_value(); question = next.question) {
      now += Micros(question->padding == 0 ? 60 : large_us);
      next = prober.answered(1, question->number, now);
    }
    return next.figures->byte_us;
  };
  EXPECT_EQ(run_series(50), 0);
  EXPECT_FALSE(prober.is_due(1, now)) << "a pause, or probes would never end";
  EXPECT_TRUE(prober.is_due(1, now + 2 * Prober::kVagueAgainAfter));
  EXPECT_DOUBLE_EQ(run_series(160), 0.001);
  EXPECT_FALSE(prober.is_due(1, now + 2 * Prober::kVagueAgainAfter));
}

TEST(ProberTest, AnswersThatWereNotAwaitedAreNone) {
  Prober prober(2);
  EXPECT_FALSE(prober.answered(1, 0, kStart).question.has_value());
  const auto question = prober.begin(1, 0, kStart);
  EXPECT_FALSE(prober.answered(1, question->number + 1, kStart).question.has_value());
  EXPECT_TRUE(prober.answered(1, question->number, kStart).question.has_value());
  EXPECT_FALSE(prober.answered(1, question->number, kStart).question.has_value());
}

}  // namespace
}  // namespace tutti

// The meter of a link's pace: seconds go by, and the counts are made up.
#include "daemon/group/link_pace.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A link with one connection, or more, that a test drives by the second.
class LinkPaceMeterTest : public ::testing::Test {
 protected:
  LinkPaceMeterTest() { reconnect(1); }

  void reconnect(size_t connections) {
    counts_ = {.host = "b", .connections = {connections, ConnectionCounts()}};
    for (ConnectionCounts& each : counts_.connections) {
      each.round_trip = Micros(300);
      each.least_round_trip = Micros(20);
    }
  }
  // So many seconds in each of which so much is moved, by each connection, in so many frames.
  void run(int seconds, uint64_t bytes, Millis busy, uint64_t frames = 1) {
    for (int i = 0; i < seconds; ++i) {
      meter_.sample(now_, counts_, waited_);
      now_ += Millis(1'000);
      counts_.frames += frames;
      for (ConnectionCounts& each : counts_.connections) {
        each.acked_bytes += bytes;
        each.busy += busy;
      }
    }
    meter_.sample(now_, counts_, waited_);
    now_ += Millis(1);
  }
  double usual_mib() const {
    return static_cast<double>(meter_.pace().usual_bytes_per_second()) / kMiB;
  }

  TimePoint now_{Millis(1'000'000)};
  LinkCounts counts_;
  Micros waited_{0};
  LinkPaceMeter meter_;
};

TEST_F(LinkPaceMeterTest, SaysNothingBeforeASecondHasPassed) {
  EXPECT_EQ(meter_.pace().window_us(), 0u);
  meter_.sample(now_, counts_, waited_);
  meter_.sample(now_ + Millis(100), counts_, waited_);
  EXPECT_EQ(meter_.pace().window_us(), 0u);
}

TEST_F(LinkPaceMeterTest, ReportsTheLastSeconds) {
  run(20, 100 * kMiB, Millis(500));
  run(3, kMiB, Millis(10), 2);
  counts_.connections[0].retransmits = 7;
  waited_ = Micros(90'000);
  run(2, kMiB, Millis(10), 2);
  const v1::LinkPace pace = meter_.pace();
  EXPECT_NEAR(static_cast<double>(pace.window_us()), 5e6, 10e3);
  EXPECT_EQ(pace.acked_bytes(), 5 * kMiB);
  EXPECT_EQ(pace.busy_us(), 50'000u);
  EXPECT_EQ(pace.latency_us(), 10 * (50 + 4 * 20));
  EXPECT_EQ(pace.retransmits(), 7u);
  EXPECT_EQ(pace.round_trip_us(), 300u);
  EXPECT_EQ(pace.waited_us(), 90'000u);
}

TEST_F(LinkPaceMeterTest, RemembersHowItWasBeforeItWasThrottled) {
  run(20, 100 * kMiB, Millis(980));
  EXPECT_NEAR(usual_mib(), 100, 5);
  run(300, kMiB, Millis(1'000));
  EXPECT_NEAR(usual_mib(), 100, 15);
  run(4 * 86'400, kMiB, Millis(1'000));
  EXPECT_LT(usual_mib(), 4) << "it is the rule by now";
}

// 1 MiB a second passes in no time that the kernel can measure: the link may be fast, and may be
// not so fast.
TEST_F(LinkPaceMeterTest, TakesWhatIsTooShortToMeasureForALowerBound) {
  run(20, kMiB, Millis(0));
  EXPECT_NEAR(usual_mib(), 250, 2);
  run(20, kMiB, Millis(800));
  EXPECT_NEAR(usual_mib(), 250, 5);
}

// Bursts that a buffer takes at once say nothing of what a link can carry.
TEST_F(LinkPaceMeterTest, ComparesOnlyWithTimesInWhichAsMuchWasMoved) {
  run(60, kMiB, Millis(0));
  run(20, 100 * kMiB, Millis(950));
  EXPECT_NEAR(usual_mib(), 105, 5);
}

TEST_F(LinkPaceMeterTest, OneFastSecondIsNoRule) {
  run(60, 100 * kMiB, Millis(900));
  run(1, 100 * kMiB, Millis(0));
  EXPECT_LT(usual_mib(), 130);
}

TEST_F(LinkPaceMeterTest, WhatRoundTripsTakeIsKnownApart) {
  run(10, 10'000 * 68, Millis(400), 10'000);
  EXPECT_EQ(meter_.pace().latency_us(), meter_.pace().busy_us());
}

TEST_F(LinkPaceMeterTest, ConnectionsOfALinkAreBusyAtTheSameTime) {
  reconnect(4);
  run(20, 100 * kMiB, Millis(980));
  EXPECT_EQ(meter_.pace().acked_bytes(), 2'000 * kMiB);
  EXPECT_EQ(meter_.pace().busy_us(), 4'900'000u);
  EXPECT_NEAR(usual_mib(), 400, 20);
}

// Also where no frame had been sent by the old one.
TEST_F(LinkPaceMeterTest, ANewConnectionBeginsANewWindowAndKeepsWhatIsUsual) {
  run(20, 100 * kMiB, Millis(980), 0);
  reconnect(1);
  meter_.sample(now_, counts_, waited_);
  EXPECT_EQ(meter_.pace().window_us(), 0u);
  run(2, kMiB, Millis(1'000), 0);
  EXPECT_EQ(meter_.pace().acked_bytes(), 2 * kMiB);
  EXPECT_NEAR(usual_mib(), 100, 5);
}

TEST_F(LinkPaceMeterTest, CountsThatGoBackDoNotUnderflow) {
  run(5, kMiB, Millis(1'000));
  counts_.connections[0].busy = Micros(0);
  run(1, kMiB, Millis(0));
  EXPECT_EQ(meter_.pace().busy_us(), 0u);
  meter_.pause();
  EXPECT_EQ(meter_.pace().window_us(), 0u);
}

}  // namespace
}  // namespace tutti

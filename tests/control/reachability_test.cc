// What the log says of a peer that cannot be reached, and how often.
#include "daemon/control/reachability.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct ReachabilityTest : ::testing::Test {
  ReachabilityTest() { ::testing::internal::CaptureStdout(); }
  ~ReachabilityTest() override { (void)::testing::internal::GetCapturedStdout(); }

  // The lines of the log since the last call, without time and level.
  static std::vector<std::string> lines() {
    std::istringstream in(::testing::internal::GetCapturedStdout());
    ::testing::internal::CaptureStdout();
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);)
      all.push_back(line.substr(line.rfind("] ") + 2));
    return all;
  }
  TimePoint after(int seconds) const { return begin + Millis(1'000 * seconds); }

  const TimePoint begin = Clock::now();
  Reachability peer{"etcd"};
};

TEST_F(ReachabilityTest, IsLoggedOnceAMinuteThoughTheTextDiffersEachTime) {
  for (int second = 0; second < 60; ++second)
    peer.lost(unavailable("port " + std::to_string(40'000 + second)), after(second));
  EXPECT_THAT(lines(), ElementsAre("cannot reach etcd: port 40000; tries again, for 0 s so far"));
  EXPECT_EQ(peer.why(), "port 40059");
  peer.lost(unavailable("port 1"), after(60));
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("port 1; tries again, for ")));
}

TEST_F(ReachabilityTest, EachCodeIsLoggedAtOnceAndNotEachTimeThatTheyAlternate) {
  for (int second = 0; second < 60; second += 2) {
    peer.lost(unavailable("a"), after(second));
    peer.lost(deadline_exceeded("b"), after(second + 1));
  }
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("etcd: a"), HasSubstr("etcd: b")));
}

TEST_F(ReachabilityTest, AfterItAnsweredItsLossIsNews) {
  peer.lost(unavailable("a"), after(0));
  peer.reached();
  peer.lost(unavailable("a"), after(1));
  EXPECT_THAT(lines(), ElementsAre(HasSubstr("cannot reach"), HasSubstr("answers again, after"),
                                   HasSubstr("cannot reach")));
  EXPECT_EQ(peer.text().find("unreachable for "), 0u);
}

}  // namespace
}  // namespace tutti

// CoordinatorClient against coordinators that misbehave, stall or lose their state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/control/fake_coordinator.h"
#include "tests/control/net.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct MeshAttendance : ::testing::Test {
  bool hears(const FakeCoordinator& coordinator, size_t messages) {
    return await(loop, [&] { return coordinator.said().size() >= messages; });
  }
  Loop loop;
};

TEST_F(MeshAttendance, JoinThatNobodyAnswersFailsInTimeAndIsWithdrawn) {
  FakeCoordinator coordinator;
  FakeWorkerClient a(loop, coordinator.address(), "a");
  a.join(0, 2);  // The stream is open once the coordinator has received it.
  ASSERT_TRUE(hears(coordinator, 1));
  const TimePoint begin = Clock::now();
  a.join(1, 2, 300);
  ASSERT_TRUE(await(loop, [&] { return !a.refused.empty(); }));
  EXPECT_GE(Clock::now() - begin, Millis(300));
  EXPECT_LT(Clock::now() - begin, Millis(300 + 2'500));  // 300 ms on an idle machine.
  EXPECT_EQ(a.refused[0].first, 1u);
  EXPECT_EQ(a.refused[0].second.code(), Code::deadline_exceeded);
  EXPECT_THAT(a.refused[0].second.message(),
              HasSubstr("the coordinator at " + coordinator.address() +
                        " did not answer in time while rank 1 of job \"demo\" waited to join"));
  ASSERT_TRUE(hears(coordinator, 3));
  EXPECT_THAT(words_of(coordinator.said()),
              ElementsAre("join 0 after 0", "join 1 after 0", "gone 1 of 0 OK"));
  EXPECT_EQ(a.refused.size(), 1u);
}

TEST_F(MeshAttendance, LateRefusalOfAnEarlierJoinIsIgnored) {
  FakeCoordinator coordinator;
  FakeWorkerClient a(loop, coordinator.address(), "a");
  for (size_t joins = 1; joins <= 2; ++joins) {
    a.join(0, 1);
    ASSERT_TRUE(hears(coordinator, joins));
  }
  coordinator.say(refusal_of(coordinator.said()[0].join()));
  coordinator.say(roster_of(1, coordinator.said()[1].join()));
  ASSERT_TRUE(await(loop, [&] { return a.rosters.size() == 1; }));
  EXPECT_TRUE(a.refused.empty()) << a.refused[0].second.to_string();
}

TEST_F(MeshAttendance, RefusalWithoutANumberIsOfTheLastJoin) {
  FakeCoordinator coordinator;
  FakeWorkerClient a(loop, coordinator.address(), "a");
  a.join(0, 1);
  ASSERT_TRUE(hears(coordinator, 1));
  v1::JoinRank unnumbered = coordinator.said()[0].join();
  unnumbered.clear_number();
  coordinator.say(refusal_of(unnumbered));
  ASSERT_TRUE(await(loop, [&] { return !a.refused.empty(); }));
  EXPECT_EQ(a.refused[0].second, deadline_exceeded("late"));
}

TEST_F(MeshAttendance, RosterOfAnotherWorldSizeIsNotTheJoins) {
  FakeCoordinator coordinator;
  FakeWorkerClient a(loop, coordinator.address(), "a");
  a.join(0, 2);
  ASSERT_TRUE(hears(coordinator, 1));
  coordinator.say(roster_of(1, coordinator.said()[0].join()));
  ASSERT_TRUE(await(loop, [&] { return a.rosters.size() == 1; }));
  coordinator.say(refusal_of(coordinator.said()[0].join()));
  ASSERT_TRUE(await(loop, [&] { return a.refused.size() == 1; }));
}

TEST_F(MeshAttendance, JoinTellsTheNewestEpochThatTheWorkerHad) {
  FakeCoordinator coordinator({5, 7});
  FakeWorkerClient a(loop, coordinator.address(), "a");
  for (const uint32_t epoch : {5u, 7u}) {
    a.join(0, 1);
    ASSERT_TRUE(await(loop, [&] { return !a.rosters.empty(); }));
    EXPECT_EQ(a.rosters[0].epoch, epoch);
    a.client->report_gone(epoch, 0, {});
    a.rosters.clear();
  }
  a.join(0, 1);
  ASSERT_TRUE(hears(coordinator, 5));
  EXPECT_THAT(words_of(coordinator.said()),
              ElementsAre("join 0 after 0", "gone 0 of 5 OK", "join 0 after 5", "gone 0 of 7 OK",
                          "join 0 after 7"));
}

// Epochs and their links are distinguished by their numbers.
TEST_F(MeshAttendance, EpochWhoseNumberWasThereBeforeIsRefused) {
  FakeCoordinator coordinator({5, 5, 4, 6});
  FakeWorkerClient a(loop, coordinator.address(), "a");
  a.join(0, 1);
  ASSERT_TRUE(await(loop, [&] { return a.rosters.size() == 1; }));
  for (const std::string epoch : {"5", "4"}) {
    a.join(0, 1);
    ASSERT_TRUE(await(loop, [&] { return a.refused.size() == 1; }));
    EXPECT_EQ(a.refused[0].second.code(), Code::unavailable);
    EXPECT_THAT(a.refused[0].second.message(),
                HasSubstr("started epoch " + epoch + " of job \"demo\" again, after epoch 5"));
    a.refused.clear();
  }
  ASSERT_TRUE(hears(coordinator, 5));
  EXPECT_THAT(words_of(coordinator.said()),
              ElementsAre("join 0 after 0", "join 0 after 5", "gone 0 of 5 UNAVAILABLE",
                          "join 0 after 5", "gone 0 of 4 UNAVAILABLE"));
  a.join(0, 1);
  ASSERT_TRUE(await(loop, [&] { return a.rosters.size() == 2; }));
  EXPECT_EQ(a.rosters[1].epoch, 6u);
}

TEST_F(MeshAttendance, ResumeTellsWhatBecameOfTheEpoch) {
  FakeCoordinator coordinator({5});
  FakeWorkerClient a(loop, coordinator.address(), "a");
  const v1::Pass pass = pass_of("a", "demo", 42);
  a.join(0, 1, 60'000, &pass);
  ASSERT_TRUE(await(loop, [&] { return a.rosters.size() == 1; }));
  coordinator.end_streams();
  ASSERT_TRUE(hears(coordinator, 1));
  EXPECT_THAT(words_of(coordinator.said()), ElementsAre("resume 5 at a with 0"));
  EXPECT_EQ(coordinator.said()[0].resume().roster().secret(), "secret");
  EXPECT_EQ(coordinator.said()[0].resume().pass().uid(), 42u);
  a.client->report_gone(5, 0, unavailable("rank 0 died"));
  ASSERT_TRUE(hears(coordinator, 2));
  for (int times = 0; times < 2; ++times) {  // It cannot know which coordinator received it.
    coordinator.end_streams();
    ASSERT_TRUE(hears(coordinator, 1));
    EXPECT_THAT(words_of(coordinator.said()),
                ElementsAre("resume 5 at a with broken: rank 0 died"));
  }
}

}  // namespace
}  // namespace tutti

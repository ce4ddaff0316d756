// The rules for running epochs, without IO: what ends them, and when the next one starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/membership/membership_fixture.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct MeshEpoch : testing::Test, MembershipTest {
  v1::Resume resume_of(uint32_t epoch, const std::vector<uint32_t>& ranks,
                       const std::string& host = "a") {
    v1::Resume resume =
        MembershipTest::resume_of(epoch, ranks, ranks.empty() || ranks[0] < 2 ? host : "b");
    resume.mutable_roster()->set_strategy("ring");
    return resume;
  }
  // One of the worker's ranks died.
  v1::Resume broken_resume_of(uint32_t epoch, std::vector<uint32_t> ranks) {
    v1::Resume resume = resume_of(epoch, std::move(ranks));
    write_status(unavailable("rank 1 died", {1, "a"}), *resume.mutable_broken());
    return resume;
  }
};

TEST_F(MeshEpoch, WorkerThatEndsAbortsTheEpochForTheOthers) {
  join_four();
  const auto answers = worker_gone(2);
  EXPECT_THAT(words_of(answers), ElementsAre("1: aborted 1 UNAVAILABLE"));
  EXPECT_EQ(status_of(answers).message(), "the worker of host b (ranks 2, 3) is gone");
  EXPECT_EQ(status_of(answers).culprit(), (Culprit{-1, "b"}));
  EXPECT_EQ(membership.jobs(), 0u);
}

TEST_F(MeshEpoch, WorkersOfAHostAreThoseOfRunningEpochs) {
  EXPECT_THAT(membership.workers_on("b"), IsEmpty());
  join_four();
  ASSERT_EQ(membership.workers_on("b").size(), 1u);
  const v1::WorkerReport worker = membership.workers_on("b")[0];
  EXPECT_EQ(worker.job(), "demo");
  EXPECT_EQ(worker.uid(), 1'000u);
  EXPECT_EQ(worker.world_size(), 4u);
  EXPECT_EQ(worker.epoch(), 1u);
  ASSERT_EQ(worker.ranks_size(), 2);
  EXPECT_EQ(worker.ranks(0).rank(), 2u);
  EXPECT_EQ(worker.ranks(1).pid(), 103u);
  gone(2, 1, 3);
  ASSERT_EQ(membership.workers_on("b").size(), 1u);
  EXPECT_EQ(membership.workers_on("b")[0].ranks_size(), 1);
  gone(2, 1, 2);
  EXPECT_THAT(membership.workers_on("b"), IsEmpty());
}

TEST_F(MeshEpoch, DeadRankMakesRoomForTheNextEpochAndAbortsNothing) {
  join_four();
  EXPECT_THAT(gone(2, 1, 3, unavailable("rank 3 (host b, pid 103) died", {3, "b"})), IsEmpty());
  EXPECT_THAT(gone(1, 1, 0, unavailable("late")), IsEmpty());
  EXPECT_THAT(words_of(join_four()), ElementsAre("1: roster 2", "2: roster 2"));
}

TEST_F(MeshEpoch, OnlyTheRanksOwnWorkerSpeaksForIt) {
  join_four();
  EXPECT_THAT(gone(1, 1, 3, unavailable("a lie")), IsEmpty());
  EXPECT_THAT(gone(1, 1, 4, unavailable("no such rank")), IsEmpty());
  EXPECT_THAT(gone(1, 2, 0, unavailable("no such epoch")), IsEmpty());
  EXPECT_THAT(words_of(join(3, join_of(2, 4, "c"))), ElementsAre("3: refused 2 ALREADY_EXISTS"));
}

TEST_F(MeshEpoch, RunningRankMayNotJoinAgain) {
  join_four();
  const auto answers = join(3, join_of(2, 4, "c"));
  EXPECT_THAT(words_of(answers), ElementsAre("3: refused 2 ALREADY_EXISTS"));
  EXPECT_THAT(status_of(answers).message(), HasSubstr("runs in epoch 1 (host b, pid 102)"));
}

TEST_F(MeshEpoch, RanksThatLeftMeetAgainInTheNextEpoch) {
  join_four();
  EXPECT_THAT(gone(1, 1, 0), IsEmpty());
  EXPECT_THAT(join(1, join_of(0, 4)), IsEmpty());
  gone(1, 1, 1);
  gone(2, 1, 2);
  gone(2, 1, 3);
  join(1, join_of(1, 4));
  join(2, join_of(2, 4, "b"));
  EXPECT_THAT(words_of(join(2, join_of(3, 4, "b"))), ElementsAre("1: roster 2", "2: roster 2"));
}

TEST_F(MeshEpoch, NextWorldMayBeSmaller) {
  join_four();
  gone(2, 1, 3, unavailable("died"));
  join(1, join_of(0, 3));
  join(1, join_of(1, 3));
  EXPECT_THAT(words_of(join(2, join_of(2, 3, "b"))), ElementsAre("1: roster 2", "2: roster 2"));
}

TEST_F(MeshEpoch, EpochsGoOnCountingWhenAJobWasEmpty) {
  for (uint32_t epoch = 1; epoch <= 3; ++epoch) {
    EXPECT_THAT(words_of(join(1, join_of(0, 1))),
                ElementsAre("1: roster " + std::to_string(epoch)));
    EXPECT_EQ(membership.jobs(), 1u);
    gone(1, epoch, 0);
    EXPECT_EQ(membership.jobs(), 0u);
  }
}

TEST_F(MeshEpoch, AWorkerCannotTakeAwayTheRanksOfAnother) {
  join_four();
  EXPECT_THAT(gone(2, 1, 0, unavailable("rank 0 died")), IsEmpty());
  EXPECT_THAT(gone(2, 1, 1), IsEmpty());
  EXPECT_THAT(words_of(join(1, join_of(0, 4))), ElementsAre("1: refused 0 ALREADY_EXISTS"));
  v1::JoinRank pending = join_of(4, 5, "c");
  join(3, pending);
  EXPECT_THAT(gone(2, 0, 4), IsEmpty());
  EXPECT_THAT(words_of(join(3, pending)), ElementsAre("3: refused 4 ALREADY_EXISTS"));
}

TEST_F(MeshEpoch, RestartedCoordinatorLearnsFromResume) {
  EXPECT_THAT(resumed(1, resume_of(5, {0, 1})), IsEmpty());
  EXPECT_THAT(resumed(2, resume_of(5, {2, 3})), IsEmpty());
  EXPECT_THAT(words_of(join(3, join_of(1, 4))), ElementsAre("3: refused 1 ALREADY_EXISTS"));
  EXPECT_THAT(words_of(worker_gone(2)), ElementsAre("1: aborted 5 UNAVAILABLE"));
  EXPECT_THAT(words_of(join_four()), ElementsAre("1: roster 6", "2: roster 6"));
}

TEST_F(MeshEpoch, WhoShowsNoPassOfTheJobsOwnerIsNotBelievedAboutEpochs) {
  EXPECT_THAT(words_of(join(1, join_of(0, 1))), ElementsAre("1: roster 1"));
  v1::Resume stranger = resume_of(99, {0});
  for (const v1::Pass& pass :
       {v1::Pass(), pass_of("a", "demo", 1'000, "wrong"), pass_of("a", "demo", 1'001), pass_of("b"),
        pass_of("a", "another")}) {
    *stranger.mutable_pass() = pass;
    const auto answers = resumed(2, stranger);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].to, 2u) << "only who asked is notified";
    EXPECT_FALSE(status_of(answers).ok());
  }
  stranger.set_job("another");
  *stranger.mutable_pass() = pass_of("a");
  resumed(2, stranger);
  EXPECT_EQ(membership.jobs(), 1u) << "nothing is kept of them";
  EXPECT_THAT(worker_gone(2), IsEmpty());
  EXPECT_THAT(words_of(resumed(2, resume_of(99, {0}))), ElementsAre("1: aborted 1 ABORTED"));
}

// Else anyone who used a name before could spoil it for others.
TEST_F(MeshEpoch, NumbersOfOneUsersEpochsDoNotCountForAnothers) {
  v1::JoinRank theirs = join_of(0, 1);
  theirs.set_last_epoch(kEpochMax);
  *theirs.mutable_pass() = pass_of("a", "demo", 1'001);
  EXPECT_THAT(words_of(join(1, theirs)), ElementsAre("1: roster " + std::to_string(kEpochMax + 1)));
  worker_gone(1);
  EXPECT_THAT(words_of(join(2, join_of(0, 1))), ElementsAre("2: roster 1"));
}

TEST_F(MeshEpoch, NextEpochWaitsForTheLastOfTheOld) {
  join_four();
  gone(1, 1, 0);
  EXPECT_THAT(join(1, join_of(0, 1)), IsEmpty());
  gone(1, 1, 1);
  gone(2, 1, 2);
  EXPECT_THAT(words_of(gone(2, 1, 3)), ElementsAre("1: roster 2"));
}

TEST_F(MeshEpoch, DeathStartsTheEpochThatWaited) {
  join_four();
  gone(1, 1, 0);
  join(1, join_of(0, 1));
  EXPECT_THAT(words_of(worker_gone(2)), ElementsAre("1: aborted 1 UNAVAILABLE", "1: roster 2"));
}

TEST_F(MeshEpoch, WaitingForTheOldEpochEndsInTime) {
  join_four();
  gone(1, 1, 0);
  join(1, join_of(0, 1));
  const auto answers = expire(now + Millis(1'000));
  EXPECT_THAT(words_of(answers), ElementsAre("1: refused 0 DEADLINE_EXCEEDED"));
  EXPECT_THAT(status_of(answers).message(), HasSubstr("epoch 1 still runs"));
}

TEST_F(MeshEpoch, ResumeBringsTheStrategyBack) {
  resumed(1, resume_of(5, {0}));
  join(1, join_of(3, 4));
  gone(1, 5, 0);
  for (uint32_t rank = 0; rank < 2; ++rank) join(1, join_of(rank, 4));
  const auto answers = join(1, join_of(2, 4));
  EXPECT_THAT(words_of(answers), ElementsAre("1: roster 6"));
  EXPECT_EQ(answers.at(0).body.roster().strategy(), "ring");
}

TEST_F(MeshEpoch, EpochsGoOnFromTheNewestThatAJoiningWorkerHasSeen) {
  v1::JoinRank knowing = join_of(1, 3, "b");
  knowing.set_last_epoch(7);
  v1::JoinRank forgetful = join_of(2, 3, "c");
  forgetful.set_last_epoch(4);
  join(1, join_of(0, 3));
  join(2, knowing);
  EXPECT_THAT(words_of(join(3, forgetful)),
              ElementsAre("1: roster 8", "2: roster 8", "3: roster 8"));
}

TEST_F(MeshEpoch, JoinThatKnowsAnEpochBeyondTheLastIsInvalid) {
  v1::JoinRank hostile = join_of(0, 1);
  hostile.set_last_epoch(UINT32_MAX);
  EXPECT_THAT(words_of(join(1, hostile)), ElementsAre("1: refused 0 INVALID_ARGUMENT"));
  EXPECT_THAT(resumed(1, resume_of(UINT32_MAX, {0})), IsEmpty());
  EXPECT_THAT(words_of(join(1, join_of(0, 1))), ElementsAre("1: roster 1"));
}

TEST_F(MeshEpoch, RankThatDiedWhileTheCoordinatorWasAwayMakesRoomForTheNext) {
  resumed(2, resume_of(5, {2, 3}));
  EXPECT_THAT(resumed(1, broken_resume_of(5, {0})), IsEmpty());
  EXPECT_THAT(words_of(join_four()), ElementsAre("1: roster 6", "2: roster 6"));
}

// As if the coordinator had seen the death: the other ranks' epoch is not aborted.
TEST_F(MeshEpoch, DeathThatAnotherWorkerResumesWithAbortsNothing) {
  EXPECT_THAT(resumed(1, broken_resume_of(5, {0})), IsEmpty());
  EXPECT_EQ(membership.jobs(), 0u);
  EXPECT_THAT(resumed(2, resume_of(5, {2, 3})), IsEmpty());
  EXPECT_THAT(words_of(join_four()), ElementsAre("1: roster 6", "2: roster 6"));
}

TEST_F(MeshEpoch, RanksThatLeftWhileTheStreamWasDownDoNotRun) {
  join_four();
  EXPECT_THAT(resumed(7, resume_of(1, {2})), IsEmpty());
  EXPECT_THAT(worker_gone(2), IsEmpty());
  EXPECT_THAT(join(7, join_of(3, 4, "b")), IsEmpty());
  EXPECT_THAT(words_of(join(7, join_of(2, 4, "b"))), ElementsAre("7: refused 2 ALREADY_EXISTS"));
}

// A number that one worker reports must not end the epoch of the others.
TEST_F(MeshEpoch, EpochWhoseNumberIsHeardOfMayStillBeResumed) {
  v1::JoinRank again = join_of(3, 4, "b");
  again.set_last_epoch(5);
  EXPECT_THAT(resumed(2, resume_of(5, {}, "b")), IsEmpty());
  EXPECT_THAT(join(2, again), IsEmpty());
  EXPECT_THAT(resumed(1, resume_of(5, {0, 1})), IsEmpty());
  EXPECT_THAT(words_of(join(3, join_of(1, 4, "c"))), ElementsAre("3: refused 1 ALREADY_EXISTS"));
  EXPECT_THAT(words_of(worker_gone(1)), IsEmpty());
  EXPECT_THAT(words_of(resumed(1, resume_of(5, {0, 1}))), ElementsAre("1: aborted 5 UNAVAILABLE"));
}

TEST_F(MeshEpoch, ResumeWithoutRanksTellsTheNumberOnly) {
  EXPECT_THAT(words_of(join(2, join_of(0, 1, "b"))), ElementsAre("2: roster 1"));
  EXPECT_THAT(resumed(1, resume_of(5, {})), IsEmpty());
  EXPECT_THAT(words_of(join(3, join_of(0, 1, "c"))), ElementsAre("3: refused 0 ALREADY_EXISTS"));
  gone(2, 1, 0);
  EXPECT_THAT(words_of(join(2, join_of(0, 1, "b"))), ElementsAre("2: roster 6"));
}

// A coordinator that lost its state may have given two epochs the same number.
TEST_F(MeshEpoch, ResumeWithAnotherSecretIsOfAnotherEpoch) {
  join_four();
  v1::Resume other = resume_of(1, {2, 3});
  other.mutable_roster()->set_secret("another");
  EXPECT_THAT(words_of(resumed(7, other)), ElementsAre("7: aborted 1 UNAVAILABLE"));
  EXPECT_THAT(worker_gone(7), IsEmpty());
  EXPECT_THAT(words_of(worker_gone(2)), ElementsAre("1: aborted 1 UNAVAILABLE"));
}

TEST_F(MeshEpoch, StreamThatReconnectsBeforeItsEndIsNoticedKeepsTheEpoch) {
  join_four();
  EXPECT_THAT(resumed(7, resume_of(1, {2, 3})), IsEmpty());
  EXPECT_THAT(worker_gone(2), IsEmpty());
  EXPECT_THAT(words_of(worker_gone(7)), ElementsAre("1: aborted 1 UNAVAILABLE"));
}

TEST_F(MeshEpoch, ResumeOfAnEpochThatIsOverIsAborted) {
  join_four();
  worker_gone(2);
  const auto answers = resumed(7, resume_of(1, {2, 3}));
  EXPECT_THAT(words_of(answers), ElementsAre("7: aborted 1 UNAVAILABLE"));
  EXPECT_THAT(status_of(answers).message(), HasSubstr("epoch 1 of job \"demo\" was ended"));
}

TEST_F(MeshEpoch, NewerResumeEndsAnOlderOne) {
  resumed(1, resume_of(5, {0, 1}));
  EXPECT_THAT(words_of(resumed(2, resume_of(6, {2, 3}))), ElementsAre("1: aborted 5 ABORTED"));
}

TEST_F(MeshEpoch, MalformedResumeIsIgnored) {
  v1::Resume hole = resume_of(1, {0});
  hole.mutable_roster()->mutable_ranks(2)->set_rank(7);
  for (const v1::Resume& bad :
       {hole, resume_of(0, {0}), resume_of(1, {4}), resume_of(1, {}), v1::Resume()})
    EXPECT_THAT(resumed(1, bad), IsEmpty());
  EXPECT_EQ(membership.jobs(), 0u);
}

TEST_F(MeshEpoch, StrategyGoesToAllWorkersAndIntoRosters) {
  EXPECT_EQ(membership.set_strategy("demo", "ring").status().code(), Code::not_found);
  join(1, join_of(0, 2));
  const auto waiting = membership.set_strategy("demo", "ring");
  ASSERT_TRUE(waiting.ok());
  EXPECT_THAT(words_of(apply(*waiting)), ElementsAre("1: strategy ring"));
  const auto answers = join(2, join_of(1, 2, "b"));
  EXPECT_EQ(answers.at(0).body.roster().strategy(), "ring");
  const auto running = membership.set_strategy("demo", "tree:2");
  ASSERT_TRUE(running.ok());
  EXPECT_THAT(words_of(apply(*running)), ElementsAre("1: strategy tree:2", "2: strategy tree:2"));
}

TEST(MeshLastEpochs, RemembersOnlyTheNewestJobs) {
  LastEpochs last(3);
  for (uint32_t i = 1; i <= 4; ++i) last.add("job" + std::to_string(i), {i, EpochEnd::death});
  EXPECT_EQ(last.size(), 3u);
  EXPECT_EQ(last.take("job1"), (LastEpoch{}));
  EXPECT_EQ(last.take("job2"), (LastEpoch{2, EpochEnd::death}));
  EXPECT_EQ(last.take("job2"), (LastEpoch{}));
  last.add("job3", {9, EpochEnd::over});
  EXPECT_EQ(last.size(), 2u);
  EXPECT_EQ(last.take("job3"), (LastEpoch{9, EpochEnd::over}));
}

}  // namespace
}  // namespace tutti

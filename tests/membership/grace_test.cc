// The rules for workers whose streams break, and for what outlives a coordinator, without IO.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/membership/membership_fixture.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Millis kGrace{5'000};

struct MeshGrace : testing::Test, MembershipTest {
  MeshGrace() { membership = Membership(test_passes(), kGrace); }

  // For the worker of ranks 0 and 1 on host a, or of 2 and 3 on host b.
  Messages resume(WorkerStream worker, const std::vector<uint32_t>& ranks, const std::string& host,
                  uint32_t epoch = 1) {
    return resumed(worker, resume_of(epoch, ranks, host));
  }
  // What the coordinator's successor starts with.
  void restart() {
    membership = Membership(test_passes(), kGrace);
    for (const v1::JobState& state : store.load())
      EXPECT_EQ(membership.restore(state, now), Status());
  }
  Messages expire_at(TimePoint when) {
    now = when;
    return expire(now);
  }
};

// ---- Streams that break ----

TEST_F(MeshGrace, WorkerWhoseStreamBreaksMayComeBack) {
  join_four();
  EXPECT_THAT(worker_gone(1), IsEmpty());
  EXPECT_THAT(worker_gone(2), IsEmpty());
  EXPECT_EQ(membership.next_deadline(), now + kGrace);
  now += kGrace / 2;
  EXPECT_THAT(resume(3, {0, 1}, "a"), IsEmpty());
  EXPECT_THAT(resume(4, {2, 3}, "b"), IsEmpty());
  EXPECT_EQ(membership.next_deadline(), TimePoint::max());
  EXPECT_THAT(expire_at(now + 2 * kGrace), IsEmpty());
  EXPECT_THAT(words_of(join(5, join_of(1, 4, "c"))), ElementsAre("5: refused 1 ALREADY_EXISTS"));
}

TEST_F(MeshGrace, WorkerThatDoesNotComeBackEndsItsEpochByName) {
  join_four();
  worker_gone(1);
  worker_gone(2);
  resume(3, {0, 1}, "a");
  EXPECT_THAT(expire_at(now + kGrace - Millis(1)), IsEmpty());
  const auto answers = expire_at(now + Millis(1));
  EXPECT_THAT(words_of(answers), ElementsAre("3: aborted 1 UNAVAILABLE"));
  EXPECT_EQ(status_of(answers).message(), "the worker of host b (ranks 2, 3) is gone");
  EXPECT_EQ(status_of(answers).culprit(), (Culprit{-1, "b"}));
  EXPECT_EQ(membership.jobs(), 0u);
}

// The deadline passed while nobody looked.
TEST_F(MeshGrace, ASuspendedCoordinatorGivesWorkersTheirTimeAgain) {
  join_four();
  worker_gone(2);
  EXPECT_THAT(expire_at(now + Millis(60'000)), IsEmpty());
  EXPECT_EQ(membership.next_deadline(), now + kGrace);
  EXPECT_THAT(resume(4, {2, 3}, "b"), IsEmpty());
  EXPECT_THAT(expire_at(now + kGrace), IsEmpty());
  EXPECT_EQ(membership.jobs(), 1u);
}

TEST_F(MeshGrace, AWorkerOfTheSameHostThatJoinsTakesThePlaceOfTheLost) {
  join_four();
  worker_gone(2);
  EXPECT_THAT(join(1, join_of(0, 4)).size(), 1u) << "rank 0 is still in its epoch";
  EXPECT_THAT(words_of(join(3, join_of(2, 4, "b"))), ElementsAre("1: aborted 1 UNAVAILABLE"));
  join(1, join_of(0, 4));
  join(1, join_of(1, 4));
  EXPECT_THAT(words_of(join(3, join_of(3, 4, "b"))), ElementsAre("1: roster 2", "3: roster 2"));
}

TEST_F(MeshGrace, TheNextEpochWaitsForALostWorkerOfTheLast) {
  join_four();
  worker_gone(2);
  gone(1, 1, 0);
  gone(1, 1, 1);
  v1::JoinRank alone = join_of(0, 1);
  alone.set_timeout_ms(60'000);
  EXPECT_THAT(join(1, alone), IsEmpty());
  EXPECT_THAT(words_of(expire_at(now + kGrace)), ElementsAre("1: roster 2"));
}

// ---- What outlives the coordinator ----

TEST_F(MeshGrace, RestoredEpochGoesOnOnceItsWorkersResume) {
  join_four();
  restart();
  EXPECT_THAT(resume(3, {0, 1}, "a"), IsEmpty());
  EXPECT_THAT(resume(4, {2, 3}, "b"), IsEmpty());
  EXPECT_THAT(expire_at(now + kGrace), IsEmpty());
  EXPECT_THAT(words_of(worker_gone(3)), IsEmpty());
  EXPECT_THAT(words_of(expire_at(now + kGrace)), ElementsAre("4: aborted 1 UNAVAILABLE"));
}

TEST_F(MeshGrace, WorkersThatDoNotResumeARestoredEpochHaveLeftIt) {
  join_four();
  restart();
  resume(3, {0, 1}, "a");
  EXPECT_THAT(expire_at(now + kGrace), IsEmpty()) << "ranks 2 and 3 may have left before";
  gone(3, 1, 0);
  EXPECT_EQ(membership.jobs(), 1u);
  gone(3, 1, 1);
  EXPECT_EQ(membership.jobs(), 0u);
}

// As where the agent of their host is down: they run on, and hear of the new coordinator later.
TEST_F(MeshGrace, WorkersThatResumeARestoredEpochAfterTheGraceGoOn) {
  join_four();
  restart();
  EXPECT_THAT(expire_at(now + kGrace), IsEmpty());
  EXPECT_EQ(membership.jobs(), 0u);
  restart();
  EXPECT_THAT(resume(3, {0, 1}, "a"), IsEmpty());
  EXPECT_THAT(resume(4, {2, 3}, "b"), IsEmpty());
  EXPECT_THAT(words_of(join(5, join_of(1, 4, "c"))), ElementsAre("5: refused 1 ALREADY_EXISTS"));
}

TEST_F(MeshGrace, WorkersThatResumeAfterTheOthersHaveLeftGoOn) {
  join_four();
  restart();
  resume(3, {0, 1}, "a");
  expire_at(now + kGrace);
  gone(3, 1, 0);
  gone(3, 1, 1);
  EXPECT_THAT(resume(4, {2, 3}, "b"), IsEmpty());
  EXPECT_EQ(membership.jobs(), 1u);
}

TEST_F(MeshGrace, WithoutGraceARestoredEpochEndsAtOnceForThoseWhoAreNotThere) {
  join_four();
  membership = Membership(test_passes(), Millis(0));
  ASSERT_TRUE(membership.restore(store.load().at(0), now).ok());
  EXPECT_THAT(expire_at(now + Millis(1)), IsEmpty());
  EXPECT_EQ(membership.next_deadline(), TimePoint::max());
  EXPECT_EQ(membership.jobs(), 0u);
}

TEST_F(MeshGrace, EpochNumbersGoOnAfterARestart) {
  join_four();
  restart();
  EXPECT_THAT(expire_at(now + kGrace), IsEmpty());
  EXPECT_EQ(membership.jobs(), 0u) << "nobody came back";
  restart();
  EXPECT_THAT(words_of(join_four(5, 6)), ElementsAre("5: roster 2", "6: roster 2"));
}

TEST_F(MeshGrace, AJobsOwnerStaysItsOwnerAfterARestart) {
  join_four();
  restart();
  v1::JoinRank theirs = join_of(0, 1, "c");
  *theirs.mutable_pass() = pass_of("c", "demo", 1'001);
  EXPECT_THAT(words_of(join(9, theirs)), ElementsAre("9: refused 0 PERMISSION_DENIED"));
  EXPECT_THAT(resume(3, {0, 1}, "a"), IsEmpty());
  EXPECT_EQ(membership.jobs(), 1u);
}

TEST_F(MeshGrace, InvalidStatesAreRefused) {
  join_four();
  v1::JobState good = store.load().at(0);
  ASSERT_TRUE(good.has_roster());
  const auto refuses = [this](v1::JobState state, auto spoil) {
    spoil(state);
    return membership.restore(state, now).code() == Code::invalid_argument;
  };
  membership = Membership(test_passes());
  EXPECT_TRUE(refuses(good, [](auto& state) { state.set_job(""); }));
  EXPECT_TRUE(refuses(good, [](auto& state) { state.set_epoch(0); }));
  EXPECT_TRUE(refuses(good, [](auto& state) { state.set_end(3); }));
  EXPECT_TRUE(refuses(good, [](auto& state) { state.mutable_roster()->set_job("other"); }));
  EXPECT_TRUE(refuses(good, [](auto& state) { state.mutable_roster()->mutable_ranks()->Clear(); }));
  EXPECT_TRUE(refuses(good, [](auto& state) {
    state.mutable_roster()->mutable_ranks(1)->set_host(std::string(300, 'x'));
  }));
  EXPECT_EQ(membership.jobs(), 0u);
  EXPECT_TRUE(membership.restore(good, now).ok());
  EXPECT_EQ(membership.jobs(), 1u);
}

TEST_F(MeshGrace, ChangesAreReportedOnceAndTheNewestOfAJob) {
  join_four();
  auto changed = store.take_changed();
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_EQ(changed[0].epoch(), 1u);
  EXPECT_EQ(changed[0].roster().ranks_size(), 4);
  EXPECT_EQ(changed[0].owner().uid(), 1'000u);
  EXPECT_THAT(store.take_changed(), IsEmpty());
  for (uint32_t rank = 0; rank < 4; ++rank) gone(rank < 2 ? 1 : 2, 1, rank);
  changed = store.take_changed();
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_FALSE(changed[0].has_roster());
  EXPECT_EQ(changed[0].epoch(), 1u);
}

// ---- States that are saved before an epoch starts ----

struct MeshSaves : MeshGrace {
  MeshSaves() { store.set_confirms(false); }
  v1::JobState take_one() {
    const auto changed = store.take_changed();
    EXPECT_EQ(changed.size(), 1u);
    return changed.empty() ? v1::JobState() : changed[0];
  }
};

TEST_F(MeshSaves, AnEpochStartsOnceItsStateIsKept) {
  EXPECT_THAT(join_four(), IsEmpty());
  const v1::JobState state = take_one();
  EXPECT_EQ(state.roster().ranks_size(), 4);
  EXPECT_THAT(words_of(saved(state)), ElementsAre("1: roster 1", "2: roster 1"));
  EXPECT_THAT(saved(state), IsEmpty()) << "once";
  EXPECT_THAT(store.take_changed(), IsEmpty());
}

TEST_F(MeshSaves, ARankThatGaveUpMeanwhileIsNotInTheEpoch) {
  join_four();
  const v1::JobState state = take_one();
  gone(2, 0, 3);
  EXPECT_THAT(saved(state), IsEmpty());
  const v1::JobState over = take_one();
  EXPECT_EQ(over.epoch(), 1u);
  EXPECT_FALSE(over.has_roster());
  EXPECT_THAT(join(2, join_of(3, 4, "b")), IsEmpty());
  EXPECT_THAT(words_of(saved(take_one())), ElementsAre("1: roster 2", "2: roster 2"));
}

// For a second epoch as of the first: its workers may come back late, too.
TEST_F(MeshSaves, AnEpochThatIsSavedIsOverOnceItRunsNoLonger) {
  join_four();
  saved(take_one());
  gone(1, 1, 0, unavailable("it died"));
  for (uint32_t rank = 1; rank < 4; ++rank) gone(rank < 2 ? 1 : 2, 1, rank);
  store.take_changed();
  join_four();
  const v1::JobState state = take_one();
  EXPECT_EQ(state.epoch(), 2u);
  EXPECT_EQ(state.end(), 1u);
}

// A worker says meanwhile that there was a later epoch, of which the store has lost the state.
TEST_F(MeshSaves, NumbersOfEpochsNeverGoBack) {
  join_four();
  const v1::JobState state = take_one();
  resume(9, {}, "a", 7);
  gone(2, 0, 3);
  saved(state);
  join(2, join_of(3, 4, "b"));
  for (int tries = 0; tries < 3; ++tries)
    for (const v1::JobState& changed : store.take_changed())
      for (const std::string& word : words_of(saved(changed)))
        EXPECT_THAT(word, HasSubstr("roster 8"));
  EXPECT_EQ(store.load().at(0).epoch(), 8u);
}

TEST_F(MeshSaves, RanksThatChangedMeanwhileAreSavedAgain) {
  join_four();
  const v1::JobState state = take_one();
  gone(2, 0, 3);
  v1::JoinRank other = join_of(3, 4, "b");
  other.set_pid(999);
  join(2, other);
  EXPECT_THAT(saved(state), IsEmpty());
  const v1::JobState again = take_one();
  EXPECT_EQ(again.roster().ranks(3).pid(), 999u);
  EXPECT_THAT(words_of(saved(again)), ElementsAre("1: roster 1", "2: roster 1"));
}

TEST_F(MeshSaves, JoinsThatWaitForTheStateLearnWhatKeepsIt) {
  join_four();
  const auto answers = expire(now + Millis(1'000), "etcd is asleep");
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(status_of(answers).code(), Code::unavailable);
  EXPECT_THAT(status_of(answers).message(), HasSubstr("cannot start: etcd is asleep"));
}

}  // namespace
}  // namespace tutti

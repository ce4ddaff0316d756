// The rules for joining, without IO: which joins are accepted, which are refused and how.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/job_check.h"
#include "daemon/control/passes.h"
#include "daemon/membership/roster_message.h"
#include "proto/mesh.pb.h"
#include "tests/membership/membership_fixture.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct MeshJoin : testing::Test, MembershipTest {
  // Ranks 1 and 2 of 3 keep waiting, 5 s in all.
  void let_rank_0_give_up() {
    join(1, join_of(0, 3));
    for (uint32_t rank : {1u, 2u}) {
      v1::JoinRank patient = join_of(rank, 3);
      patient.set_timeout_ms(5'000);
      if (rank == 2) expire(now + Millis(1'000));
      join(1, patient);
    }
  }
};

TEST_F(MeshJoin, LastRankBringsTheRosterToEachWorkerOnce) {
  EXPECT_THAT(words_of(join(1, join_of(0, 4))), IsEmpty());
  EXPECT_THAT(words_of(join(1, join_of(1, 4))), IsEmpty());
  EXPECT_THAT(words_of(join(2, join_of(3, 4, "b"))), IsEmpty());
  const auto answers = join(2, join_of(2, 4, "b"));
  EXPECT_THAT(words_of(answers), ElementsAre("1: roster 1", "2: roster 1"));
  const Result<Roster> roster = from_message(answers.at(0).body.roster());
  ASSERT_TRUE(roster.ok());
  EXPECT_EQ(roster->job, "demo");
  EXPECT_EQ(roster->secret, "secret");
  EXPECT_EQ(roster->strategy, "");
  const std::vector<RosterRank> expected = {
      {100, "a", "a:9"}, {101, "a", "a:9"}, {102, "b", "b:9"}, {103, "b", "b:9"}};
  EXPECT_EQ(roster->ranks, expected);
  EXPECT_EQ(describe_rank(*roster, 3), "rank 3 (host b, pid 103)");
  EXPECT_EQ(membership.next_deadline(), TimePoint::max());
}

TEST_F(MeshJoin, WorldOfOneIsComplete) {
  EXPECT_THAT(words_of(join(7, join_of(0, 1))), ElementsAre("7: roster 1"));
}

TEST_F(MeshJoin, NamesAndNumbersOutOfRangeAreInvalid) {
  EXPECT_TRUE(check_job(std::string(128, 'x'), 0, 1).ok());
  EXPECT_TRUE(check_job("job äö/1", 65'534, 65'535).ok());
  EXPECT_EQ(check_job("", 0, 1).code(), Code::invalid_argument);
  EXPECT_EQ(check_job(std::string(129, 'x'), 0, 1).code(), Code::invalid_argument);
  EXPECT_EQ(check_job("a\nb", 0, 1).code(), Code::invalid_argument);
  EXPECT_EQ(check_job("x", 0, 0).code(), Code::invalid_argument);
  EXPECT_EQ(check_job("x", 0, 65'536).code(), Code::invalid_argument);
  const Status beyond = check_job("x", 4, 4);
  EXPECT_EQ(beyond.code(), Code::invalid_argument);
  EXPECT_THAT(beyond.message(), HasSubstr("rank 4 is not below the world size 4"));
  EXPECT_THAT(words_of(join(1, join_of(4, 4))), ElementsAre("1: refused 4 INVALID_ARGUMENT"));
  EXPECT_EQ(membership.jobs(), 0u);
}

// None can be proven right, and their epoch could never be complete.
TEST_F(MeshJoin, DifferingWorldSizesAreReportedToAllWhoWaitAtOnce) {
  join(1, join_of(3, 4));
  join(1, join_of(0, 4));
  const auto answers = join(2, join_of(1, 5, "b"));
  EXPECT_THAT(words_of(answers),
              ElementsAre("1: refused 0 FAILED_PRECONDITION", "1: refused 3 FAILED_PRECONDITION",
                          "2: refused 1 FAILED_PRECONDITION"));
  for (size_t i = 0; i < answers.size(); ++i) {
    const Status status = status_of(answers, i);
    EXPECT_EQ(status.message(),
              "job \"demo\": the ranks disagree on the world size: it is 4 for rank 0 (host a, pid "
              "100), rank 3 (host a, pid 103); it is 5 for rank 1 (host b, pid 101); start all "
              "with the same");
    EXPECT_EQ(status.culprit(), (Culprit{1, "b"}));
  }
  EXPECT_EQ(membership.jobs(), 0u);
  EXPECT_EQ(membership.next_deadline(), TimePoint::max());
}

TEST_F(MeshJoin, RanksThatDisagreedMayJoinAgain) {
  join(1, join_of(0, 2));
  join(2, join_of(1, 3, "b"));
  EXPECT_THAT(join(1, join_of(0, 2)), IsEmpty());
  EXPECT_THAT(words_of(join(2, join_of(1, 2, "b"))), ElementsAre("1: roster 1", "2: roster 1"));
}

TEST_F(MeshJoin, DifferingWorldSizeDoesNotTouchTheRunningEpoch) {
  join_four();
  gone(2, 1, 3);
  join(2, join_of(3, 4, "b"));
  EXPECT_THAT(words_of(join(3, join_of(4, 5, "c"))),
              ElementsAre("2: refused 3 FAILED_PRECONDITION", "3: refused 4 FAILED_PRECONDITION"));
  EXPECT_THAT(words_of(join(3, join_of(0, 4, "c"))), ElementsAre("3: refused 0 ALREADY_EXISTS"));
}

TEST_F(MeshJoin, AFewOfManyThatDisagreeAreNamed) {
  for (uint32_t rank = 0; rank < 6; ++rank) join(1, join_of(rank, 8));
  const auto answers = join(2, join_of(6, 7, "b"));
  ASSERT_EQ(answers.size(), 7u);
  EXPECT_THAT(status_of(answers).message(),
              HasSubstr("rank 3 (host a, pid 103) and 2 more; it is 7 for rank 6"));
}

TEST_F(MeshJoin, RankTakenNamesTheHolder) {
  join(1, join_of(2, 4));
  v1::JoinRank second = join_of(2, 4, "b");
  second.set_number(77);
  const auto answers = join(2, second);
  EXPECT_THAT(words_of(answers), ElementsAre("2: refused 2 ALREADY_EXISTS"));
  EXPECT_EQ(answers[0].body.refused().number(), 77u);
  EXPECT_THAT(status_of(answers).message(), HasSubstr("(host a, pid 102)"));
  EXPECT_EQ(status_of(answers).culprit(), (Culprit{2, "a"}));
}

TEST_F(MeshJoin, TwoWorkersWithOneHostNameAreDistinguished) {
  join(1, join_of(0, 2));
  v1::JoinRank other = join_of(1, 2);
  other.set_address("elsewhere:9");
  const auto answers = join(2, other);
  EXPECT_THAT(words_of(answers), ElementsAre("2: refused 1 FAILED_PRECONDITION"));
  EXPECT_THAT(status_of(answers).message(), HasSubstr("a:9 and elsewhere:9"));
}

TEST_F(MeshJoin, AnotherProtocolVersionNamesBoth) {
  v1::JoinRank other = join_of(0, 2, "b");
  other.set_version(kProtocolVersion + 6);
  const auto answers = join(1, other);
  EXPECT_THAT(words_of(answers), ElementsAre("1: refused 0 FAILED_PRECONDITION"));
  EXPECT_THAT(status_of(answers).message(),
              HasSubstr("version " + std::to_string(kProtocolVersion + 6)));
  EXPECT_THAT(status_of(answers).message(),
              HasSubstr("version " + std::to_string(kProtocolVersion) + ";"));
}

TEST_F(MeshJoin, OnlyAPassThatAnAgentSignedForThisJobAndHostAdmits) {
  const std::vector<std::pair<v1::Pass, std::string>> wrong = {
      {v1::Pass(), "UNAUTHENTICATED"},
      {pass_of("a", "demo", 1'000, "another key"), "UNAUTHENTICATED"},
      {pass_of("b"), "PERMISSION_DENIED"},
      {pass_of("a", "another"), "PERMISSION_DENIED"}};
  for (const auto& [pass, code] : wrong) {
    v1::JoinRank shown = join_of(0, 1);
    *shown.mutable_pass() = pass;
    EXPECT_THAT(words_of(join(1, shown)), ElementsAre("1: refused 0 " + code));
    EXPECT_EQ(membership.jobs(), 0u);
  }
  EXPECT_THAT(words_of(join(1, join_of(0, 1))), ElementsAre("1: roster 1"));
}

TEST_F(MeshJoin, AJobBelongsToTheUserAndSubjectThatBeganIt) {
  join(1, join_of(0, 2));
  v1::JoinRank other = join_of(1, 2, "b");
  *other.mutable_pass() = pass_of("b", "demo", 1'001);
  const auto answers = join(2, other);
  EXPECT_THAT(words_of(answers), ElementsAre("2: refused 1 PERMISSION_DENIED"));
  EXPECT_EQ(status_of(answers).message(),
            "job \"demo\" belongs to user 1000, and user 1001 on host b may not join it; choose "
            "another job name");
  other.mutable_pass()->set_uid(1'000);
  other.mutable_pass()->set_subject("vision");
  sign_pass(*other.mutable_pass(), kMeshToken);
  EXPECT_THAT(words_of(join(2, other)), ElementsAre("2: refused 1 PERMISSION_DENIED"));
  EXPECT_THAT(words_of(join(2, join_of(1, 2, "b"))), ElementsAre("1: roster 1", "2: roster 1"));
  worker_gone(1);
  worker_gone(2);
  *other.mutable_pass() = pass_of("b", "demo", 1'001);
  other.set_rank(0);
  other.set_world_size(1);
  EXPECT_THAT(words_of(join(3, other)), ElementsAre("3: roster 1"));  // It is over, and free.
}

// Much of what a worker says of itself is kept, and repeated to others.
TEST_F(MeshJoin, LongHostsAndAddressesAreInvalid) {
  v1::JoinRank longwinded = join_of(0, 1);
  longwinded.set_address(std::string(513, 'x'));
  EXPECT_THAT(words_of(join(1, longwinded)), ElementsAre("1: refused 0 INVALID_ARGUMENT"));
  EXPECT_THAT(words_of(join(1, join_of(0, 1, std::string(256, 'x')))),
              ElementsAre("1: refused 0 INVALID_ARGUMENT"));
  EXPECT_EQ(membership.jobs(), 0u);
  EXPECT_THAT(words_of(join(1, join_of(0, 1, std::string(255, 'x')))), ElementsAre("1: roster 1"));
}

TEST_F(MeshJoin, WhoTrustsTheNetworkAsksForNoSignature) {
  membership = Membership(
      [](const v1::Pass& pass) { return check_pass(pass, Credentials{.trust_network = true}); });
  v1::JoinRank shown = join_of(0, 1);
  *shown.mutable_pass() = pass_of("a", "demo", 1'000, "anything");
  EXPECT_THAT(words_of(join(1, shown)), ElementsAre("1: roster 1"));
  shown.mutable_pass()->set_uid(1'001);
  EXPECT_THAT(words_of(join(2, shown)), ElementsAre("2: refused 0 PERMISSION_DENIED"));
}

TEST_F(MeshJoin, LateJoinsAreRefusedNamingTheMissing) {
  join(1, join_of(0, 4));
  v1::JoinRank patient = join_of(1, 4, "b");
  patient.set_timeout_ms(5'000);
  join(2, patient);
  EXPECT_EQ(membership.next_deadline(), now + Millis(1'000));
  EXPECT_THAT(expire(now + Millis(999)), IsEmpty());
  const auto answers = expire(now + Millis(1'000));
  EXPECT_THAT(words_of(answers), ElementsAre("1: refused 0 DEADLINE_EXCEEDED"));
  EXPECT_EQ(status_of(answers).message(), "job \"demo\": ranks 2, 3 of 4 have not joined");
  EXPECT_EQ(status_of(answers).culprit().rank, 2);
  EXPECT_EQ(membership.next_deadline(), now + Millis(5'000));
}

TEST_F(MeshJoin, WhoGaveUpIsNotCalledMissing) {
  join(1, join_of(0, 3));
  now += Millis(10);
  join(1, join_of(1, 3));
  expire(now + Millis(990));
  const auto second = expire(now + Millis(1'000));
  EXPECT_EQ(status_of(second).message(), "job \"demo\": rank 2 of 3 has not joined");
  EXPECT_EQ(membership.jobs(), 0u);
}

TEST_F(MeshJoin, WaitingForAQuitterSaysSo) {
  let_rank_0_give_up();
  const auto answers = expire(now + Millis(5'000));
  EXPECT_EQ(status_of(answers).message(), "job \"demo\": rank 0 of 3 joined, but waited less long");
  EXPECT_EQ(status_of(answers).culprit().rank, 0);
}

TEST_F(MeshJoin, QuitterMayComeBack) {
  let_rank_0_give_up();
  EXPECT_THAT(words_of(join(1, join_of(0, 3))), ElementsAre("1: roster 1"));
}

TEST_F(MeshJoin, WithdrawnJoinFreesTheRank) {
  join(1, join_of(0, 2));
  EXPECT_THAT(gone(2, 0, 0), IsEmpty());  // Another worker's: nothing happens.
  EXPECT_THAT(words_of(join(2, join_of(0, 2, "b"))), ElementsAre("2: refused 0 ALREADY_EXISTS"));
  gone(1, 0, 0);
  EXPECT_EQ(membership.jobs(), 0u);
  join(2, join_of(0, 2, "b"));
  EXPECT_THAT(words_of(join(3, join_of(1, 2))), ElementsAre("2: roster 1", "3: roster 1"));
}

// The end of the first stream has not been noticed yet.
TEST_F(MeshJoin, WorkerThatComesByAnotherStreamHasLeftTheFirst) {
  join(1, join_of(0, 2));
  EXPECT_THAT(join(2, join_of(0, 2)), IsEmpty());
  EXPECT_THAT(words_of(join(2, join_of(1, 2))), ElementsAre("2: roster 1"));
  EXPECT_THAT(join(3, join_of(0, 2)), IsEmpty()) << "its roster was lost with the stream";
  EXPECT_THAT(words_of(join(3, join_of(1, 2))), ElementsAre("3: roster 2"));
  EXPECT_THAT(worker_gone(1), IsEmpty());
  EXPECT_THAT(worker_gone(2), IsEmpty());
}

TEST_F(MeshJoin, WorkerThatEndsTakesItsWaitingRanksAlong) {
  join(1, join_of(0, 2));
  EXPECT_THAT(worker_gone(1), IsEmpty());
  EXPECT_EQ(membership.jobs(), 0u);
  join(2, join_of(0, 2, "b"));
  EXPECT_THAT(words_of(join(3, join_of(1, 2))), ElementsAre("2: roster 1", "3: roster 1"));
}

TEST_F(MeshJoin, JobsDoNotMeet) {
  v1::JoinRank other = join_of(1, 2);
  other.set_job("other");
  join(1, join_of(0, 2));
  EXPECT_THAT(join(1, other), IsEmpty());
  EXPECT_EQ(membership.jobs(), 2u);
  EXPECT_THAT(words_of(join(1, join_of(1, 2))), ElementsAre("1: roster 1"));
}

TEST(MeshLists, LongListsAreCut) {
  std::vector<uint32_t> ranks(65);
  for (uint32_t i = 0; i < 65; ++i) ranks[i] = i;
  EXPECT_THAT(list_ranks(ranks), HasSubstr("14, 15 and 49 more"));
  EXPECT_EQ(list_ranks({3}), "rank 3");
}

}  // namespace
}  // namespace tutti

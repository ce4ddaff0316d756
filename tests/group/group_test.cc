// The rules of Follower and Leader one by one: who agrees, who does not, who is late. Pure, without
// links or threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/board.h"
#include "tests/group/agreement.h"

namespace tutti {
namespace {

using testing::AgreementTest;
using testing::all_reduce_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(AgreementTest, AHostStartsWhenItsOwnRanksAgreeAndNobodySaysAWord) {
  call(2, all_reduce_of(7));
  call(3, all_reduce_of(7));
  EXPECT_TRUE(starts_[1].contains(0));
  EXPECT_FALSE(starts_[0].contains(0));
  call(0, all_reduce_of(7));
  EXPECT_FALSE(starts_[0].contains(0));
  call(1, all_reduce_of(7));
  EXPECT_EQ(starts_[0].at(0), starts_[1].at(0));
  complete(0);
  EXPECT_TRUE(told(0).ok());
  EXPECT_EQ(followers_[0]->pending() + followers_[1]->pending() + leader_.pending(), 0u);
}

TEST_F(AgreementTest, RanksOfAHostThatDisagreeFailAllAndLateOnesGetTheSame) {
  call(0, all_reduce_of(4));
  call(1, all_reduce_of(5));
  const Status status = answers_[0].at(0);
  EXPECT_EQ(status.code(), Code::failed_precondition);
  EXPECT_THAT(status.message(), HasSubstr("rank 0 (host a, pid 4700)"));
  EXPECT_THAT(status.message(), HasSubstr("f32[4]"));
  EXPECT_THAT(status.message(), HasSubstr("f32[5]"));
  EXPECT_EQ(status.culprit(), Culprit()) << "rank 0 is the one that is wrong";
  call(2, all_reduce_of(4));
  EXPECT_EQ(answers_[1].at(0), status);
  call(3, all_reduce_of(4));
  EXPECT_FALSE(starts_[1].contains(0));
  call_all(all_reduce_of(9));
  EXPECT_TRUE(started(1));
}

TEST_F(AgreementTest, HostsThatDisagreeLearnWhoAsksForWhat) {
  for (const int rank : {0, 1}) call(rank, all_reduce_of(4));
  for (const int rank : {2, 3}) call(rank, all_reduce_of(5));
  meet(0);
  const Status status = told(0);
  EXPECT_EQ(status.code(), Code::failed_precondition);
  EXPECT_THAT(status.message(), HasSubstr("rank 0 (host a, pid 4700) asks for all_reduce f32[4]"));
  EXPECT_THAT(status.message(), HasSubstr("rank 2 (host b, pid 4702) asks for all_reduce f32[5]"));
  EXPECT_EQ(status.culprit(), Culprit());
  call_all(all_reduce_of(9));
  EXPECT_EQ(starts_[0].at(1), starts_[1].at(1));
}

TEST_F(AgreementTest, HostsThatDisagreeAndNeverMeetAreCompared) {
  for (const int rank : {0, 1}) call(rank, {Collective::broadcast, Dtype::f32, Op::sum, 4, 0, {}});
  for (const int rank : {2, 3}) call(rank, {Collective::broadcast, Dtype::f32, Op::sum, 4, 2, {}});
  pass(99);
  EXPECT_FALSE(answers_[0].contains(0));
  pass(1);
  EXPECT_EQ(told(0).code(), Code::failed_precondition);
  EXPECT_THAT(told(0).message(), HasSubstr("root=2"));
}

TEST_F(AgreementTest, ListsOfTensorsThatDifferAreBothDescribed) {
  Signature list = all_reduce_of(9);
  list.layout = pack_layout(3, 0xbeef);
  call(0, list);
  list.layout = pack_layout(4, 0xcafe);
  call(1, list);
  const Status status = answers_[0].at(0);
  EXPECT_EQ(status.code(), Code::failed_precondition);
  EXPECT_THAT(status.message(), HasSubstr("f32[9] sum of a list of 3 tensors (layout beef)"));
  EXPECT_THAT(status.message(), HasSubstr("f32[9] sum of a list of 4 tensors (layout cafe)"));
}

TEST_F(AgreementTest, EveryFieldThatMattersMustAgreeInAHostAndBetweenHosts) {
  const Signature base{Collective::reduce, Dtype::f32, Op::sum, 4, 1, {}};
  std::vector<Signature> others(7, base);
  others[0].collective = Collective::broadcast;
  others[1].dtype = Dtype::f16;
  others[2].op = Op::mean;
  others[3].count = 5;
  others[4].root = 2;
  others[5].strategies.global = {StrategyKind::ring, 0};
  others[6].layout = pack_layout(3, 0xbeef);
  uint64_t number = 0;
  for (const Signature& other : others) {
    for (const int rank : {0, 2}) call(rank, base);
    for (const int rank : {1, 3}) call(rank, other);
    EXPECT_EQ(told(number++).code(), Code::failed_precondition);
    for (const int rank : {0, 1}) call(rank, base);
    for (const int rank : {2, 3}) call(rank, other);
    meet(number);
    EXPECT_EQ(told(number++).code(), Code::failed_precondition);
  }
}

TEST_F(AgreementTest, FieldsWithoutMeaningMayDiffer) {
  Signature broadcast{Collective::broadcast, Dtype::f32, Op::sum, 4, 1, {}};
  for (const int rank : {0, 1, 2}) call(rank, broadcast);
  broadcast.op = Op::max;
  call(3, broadcast);
  ASSERT_TRUE(started(0));
  EXPECT_EQ(starts_[0].at(0), starts_[1].at(0));
}

TEST_F(AgreementTest, MembersAndSlicesMustAgreeToo) {
  const Signature signature = all_reduce_of(4);
  const uint64_t agreed = agreement_of(signature, {}, 1024, hash_of({0, 1}));
  EXPECT_NE(agreed, agreement_of(signature, {}, 2048, hash_of({0, 1})));
  EXPECT_NE(agreed, agreement_of(signature, {}, 1024, hash_of({1, 0})));
  EXPECT_NE(agreed, agreement_of(signature, {{}, {StrategyKind::ring}}, 1024, hash_of({0, 1})));
  EXPECT_NE(agreed, agreement_of(signature, {}, 1024, hash_of({0, 1}), false, true));
}

TEST_F(AgreementTest, HostsAgreeHowReproducibleValuesMove) {
  const Strategies central{{StrategyKind::centralized}, {StrategyKind::centralized}};
  uint64_t number = 0;
  const auto expect = [&](uint64_t count, uint64_t slice_bytes, bool raw, const Strategies& named) {
    Signature signature = all_reduce_of(count);
    signature.reproducible = true;
    signature.strategies = named;
    call_all(signature);
    const uint64_t agreed =
        agreement_of(signature, central, slice_bytes, hash_of({0, 1, 2, 3}), false, raw);
    EXPECT_EQ(starts_[0].at(number), agreed) << count << " elements";
    EXPECT_EQ(starts_[1].at(number), agreed) << count << " elements";
    complete(number++);
  };
  expect(4096, 128 << 10, true, central);
  expect(4097, 128 << 10, false, central);
  expect(1 << 20, 512 << 10, false, central);
  expect(4096, 128 << 10, true, {});  // Any other reduction would go by a ring.
}

TEST_F(AgreementTest, ARefusedRequestFailsTheOperationForAll) {
  call(0, all_reduce_of(4));
  for (const int rank : {2, 3}) call(rank, all_reduce_of(4));
  const Status refused = invalid_argument("rank 1 asked for nonsense", {1, "a"});
  call(1, all_reduce_of(4), 1000, refused);
  EXPECT_EQ(told(0), refused);
}

// Reports are untrusted: this one claims a mismatch in an operation that no rank has called.
TEST_F(AgreementTest, ADisagreementAboutNothingBlamesNobody) {
  Report mismatch;
  mismatch.op = {0, 7};
  mismatch.reason = Report::Reason::mismatch;
  mismatch.phase = Report::Phase::started;
  mismatch.rank = 2;
  mismatch.peer = 0;
  EXPECT_TRUE(leader_.on_message(1, mismatch, now_).ok());
  Report answer;
  answer.op = mismatch.op;
  EXPECT_TRUE(leader_.on_message(1, answer, now_).ok());
  run();
  for (uint64_t number = 0; number < 7; ++number) {
    call_all(all_reduce_of(4));
    EXPECT_TRUE(started(number));
  }
  call_all(all_reduce_of(4));
  EXPECT_EQ(told(7).code(), Code::failed_precondition);
  EXPECT_EQ(told(7).culprit(), Culprit());
}

// The leader's comparison of `waiting` reports.
class ComparisonTest : public AgreementTest {
 protected:
  // The host reports that its ranks wait for an operation of that many elements.
  void wait(int host, uint64_t number, uint64_t count) {
    Report report;
    report.op = {0, number};
    report.reason = Report::Reason::waiting;
    report.phase = Report::Phase::gathering;
    report.rank = host == 0 ? 0 : 2;
    report.signature = all_reduce_of(count);
    EXPECT_TRUE(leader_.on_message(host, report, now_).ok());
  }
  // The operations that have failed since the last call.
  std::vector<uint64_t> failed() {
    std::vector<uint64_t> numbers;
    for (const Send& send : leader_.take_sends())
      if (const Fail* fail = std::get_if<Fail>(&send.message); fail != nullptr && send.host == 0)
        numbers.push_back(fail->op.number);
    return numbers;
  }
};

// The oldest report is dropped first, whatever the operations' numbers.
TEST_F(ComparisonTest, WhatIsComparedMakesRoomByItsAge) {
  for (uint64_t number = 1; number <= kComparedMax; ++number) wait(0, number, 4);
  wait(0, 0, 4);                 // Number 1 makes room.
  wait(0, kComparedMax + 1, 4);  // Number 2 makes room, which is not the lowest.
  EXPECT_THAT(failed(), IsEmpty());
  for (const uint64_t number : {uint64_t{0}, uint64_t{3}, kComparedMax, kComparedMax + 1})
    wait(1, number, 5);
  EXPECT_THAT(failed(), ElementsAre(0, 3, kComparedMax, kComparedMax + 1));
  for (const uint64_t number : {1, 2}) wait(1, number, 5);
  EXPECT_THAT(failed(), IsEmpty()) << "these were forgotten";
}

// A failed operation needs no second status, and its report would take the room of others.
TEST_F(ComparisonTest, WhatHasFailedIsComparedNoMore) {
  wait(0, 0, 4);
  Report refusal;
  refusal.op = {0, 0};
  refusal.reason = Report::Reason::refusal;
  refusal.status = invalid_argument("rank 2 asked for nonsense");
  EXPECT_TRUE(leader_.on_message(1, refusal, now_).ok());
  EXPECT_THAT(failed(), ElementsAre(0));
  wait(1, 0, 5);
  EXPECT_THAT(failed(), IsEmpty());
}

// Links may still read the ranks' memory when the epoch ends.
TEST_F(AgreementTest, WhatRunsWhenTheEpochEndsIsAnsweredWhenTheEngineHasLetGo) {
  Follower& follower = *followers_[0];
  for (const int rank : {0, 1})
    follower.on_call(0, rank, {all_reduce_of(4), {}, now_ + Millis(9), 9}, now_);
  follower.on_call(0, 0, {all_reduce_of(4), {}, now_ + Millis(9), 9}, now_);
  follower.abort(unavailable("host b was lost"));
  std::vector<EpochOp> answered;
  const auto look = [&] {
    for (const Action& action : follower.take_actions())
      if (const Complete* complete = std::get_if<Complete>(&action)) {
        answered.push_back(complete->op);
        EXPECT_EQ(complete->status, unavailable("host b was lost"));
      }
  };
  look();
  EXPECT_EQ(answered, (std::vector<EpochOp>{{0, 1}})) << "what has not started";
  follower.on_finished({0, 0}, aborted("a link was cut"));
  look();
  EXPECT_EQ(answered, (std::vector<EpochOp>{{0, 1}, {0, 0}}));
}

TEST_F(AgreementTest, WhatTheEngineFailsEndsTheEpochAndIsAnswered) {
  Follower& follower = *followers_[0];
  for (const int rank : {0, 1})
    follower.on_call(0, rank, {all_reduce_of(4), {}, now_ + Millis(9), 9}, now_);
  follower.take_actions();
  const Status broken = unavailable("host b was lost", {2, "b"});
  follower.on_finished({0, 0}, broken);
  EXPECT_EQ(follower.cause(), broken);
  std::vector<Complete> answers;
  for (const Action& action : follower.take_actions())
    if (const Complete* complete = std::get_if<Complete>(&action)) answers.push_back(*complete);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].op, (EpochOp{0, 0}));
  EXPECT_EQ(answers[0].status, broken);
}

// A receiver that has stopped would keep the links, and so the ranks' memory, for ever.
TEST_F(AgreementTest, WhatFailedAndIsNotLetGoEndsTheEpochSoonAfterItsDeadline) {
  for (const int rank : {0, 1}) call(rank, all_reduce_of(4));
  for (const int rank : {2, 3}) call(rank, all_reduce_of(5));
  followers_[1]->on_mismatch({0, 0}, 0);
  Follower& follower = *followers_[0];
  ASSERT_TRUE(
      follower.on_message(Fail{{0, 0}, {}, failed_precondition("they disagree")}, now_).ok());
  const std::optional<TimePoint> wake = follower.next_timer();
  ASSERT_TRUE(wake.has_value());
  EXPECT_LE(*wake, now_ + Millis(1000 + 400));
  follower.on_time(*wake - Millis(1));
  EXPECT_TRUE(follower.cause().ok());
  follower.on_time(*wake);
  EXPECT_TRUE(follower.cause().ok()) << "the failure may have come just now: links get a moment";
  follower.on_time(*wake + kRecheck);
  EXPECT_EQ(follower.cause(), failed_precondition("they disagree"));
  follower.on_finished({0, 0}, aborted("a link was cut"));
  bool answered = false;
  for (const Action& action : follower.take_actions())
    if (const Complete* complete = std::get_if<Complete>(&action)) {
      answered = true;
      EXPECT_EQ(complete->status, failed_precondition("they disagree"));
    }
  EXPECT_TRUE(answered);
}

TEST_F(AgreementTest, TheEarliestDeadlineNamesWhoIsMissingOnEveryHost) {
  call(0, all_reduce_of(4), 1000);
  call(2, all_reduce_of(4), 500);
  EXPECT_EQ(followers_[1]->next_timer(), now_ + kCompareAfter);
  pass(499);
  EXPECT_FALSE(answers_[1].contains(0));
  pass(1);
  const Status status = told(0);
  EXPECT_EQ(status.code(), Code::deadline_exceeded);
  EXPECT_THAT(status.message(), HasSubstr("all_reduce #0 timed out after 500 ms"));
  EXPECT_THAT(status.message(), HasSubstr("rank 1 (host a, pid 4701)"));
  EXPECT_THAT(status.message(), HasSubstr("rank 3 (host b, pid 4703)"));
  EXPECT_EQ(status.culprit(), (Culprit{1, "a"}));
  EXPECT_FALSE(followers_[1]->next_timer().has_value());
  EXPECT_TRUE(followers_[0]->cause().ok());
}

TEST_F(AgreementTest, WhoHasStartedIsNotMissing) {
  for (const int rank : {2, 3}) call(rank, all_reduce_of(4), 300);
  call(0, all_reduce_of(4), 300);
  pass(100);
  pass(200);
  EXPECT_THAT(told(0).message(), HasSubstr("not called by rank 1 (host a, pid 4701)"));
  EXPECT_EQ(told(0).message().find("rank 2"), std::string::npos);
  call(1, all_reduce_of(4));
  EXPECT_EQ(answers_[0].at(0).code(), Code::deadline_exceeded);
}

TEST_F(AgreementTest, WhereAllHaveStartedLateDataEndsTheEpoch) {
  for (int rank = 0; rank < 4; ++rank) call(rank, all_reduce_of(4), 300);
  pass(100);
  pass(200);
  EXPECT_EQ(told(0).code(), Code::deadline_exceeded);
  EXPECT_THAT(told(0).message(), HasSubstr("waiting for data (host b)"));
  EXPECT_EQ(told(0), followers_[1]->cause());
}

TEST_F(AgreementTest, AHostThatDoesNotAnswerIsBlamed) {
  call_all(all_reduce_of(4));
  silent_ = 1;
  pass(100);
  pass(900);  // Its deadline.
  pass(250);  // The leader has asked,
  EXPECT_TRUE(followers_[0]->cause().ok());
  pass(20);  // and looked again.
  EXPECT_EQ(followers_[0]->cause().culprit(), (Culprit{-1, "b"}));
  EXPECT_THAT(followers_[0]->cause().message(),
              HasSubstr("the worker of host b (ranks 2, 3) does not"));
}

TEST_F(AgreementTest, ALeaderThatDoesNotAnswerIsBlamed) {
  call_all(all_reduce_of(4));
  silent_ = 1;  // Which is the same to host b.
  pass(100);
  pass(900);
  pass(400);
  EXPECT_TRUE(followers_[1]->cause().ok());
  pass(20);
  EXPECT_EQ(followers_[1]->cause().culprit(), (Culprit{-1, "a"}));
}

TEST_F(AgreementTest, WhoLooksTooLateWasStoppedItselfAndLooksAgain) {
  call_all(all_reduce_of(4));
  silent_ = 1;
  pass(100);
  pass(900);
  pass(1000);  // Far past kLeaderTimeout: a look,
  pass(500);   // which ends late, hence another.
  EXPECT_TRUE(followers_[1]->cause().ok());
  pass(20);
  EXPECT_EQ(followers_[1]->cause().culprit(), (Culprit{-1, "a"}));
}

}  // namespace
}  // namespace tutti

// The verdict of `tutti explain` where a part of the job does not tell, is gone, or is another's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/diagnosis/diagnosis.h"
#include "proto/board.h"
#include "tests/diagnosis/made_up_job.h"

namespace tutti::testing {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(DiagnosisPart, RanksOfAHostThatDidNotTellOfThemAreNotAccused) {
  Job job;
  job.all_run(17, kMillisecond, 15 * kSecond);
  for (const int rank : {0, 1}) job.call(rank, 17, 14 * kSecond);
  job.trace.mutable_hosts()->DeleteSubrange(1, 1);
  v1::AgentReport& missing = *job.trace.add_missing();
  missing.set_host("b");
  missing.set_address("b:7601");
  missing.set_state("unreachable: timeout");
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::unanswered);
  EXPECT_EQ(found.sentence,
            "ranks 0, 1 called all_reduce #17 14 s ago and wait; which ranks did not is not known, "
            "as host b does not tell");
  EXPECT_THAT(found.evidence, ElementsAre("host b did not answer (unreachable: timeout): what its "
                                          "ranks called is not known"));
}

TEST(DiagnosisPart, AnotherRankIsBehindThoughAHostDidNotAnswer) {
  Job job;
  job.call(0, 0, 14 * kSecond);
  job.trace.mutable_hosts()->DeleteSubrange(1, 1);
  job.trace.add_missing()->set_address("b:7601");
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.sentence,
            "rank 1 (host a, pid 101) is 1 operation behind, has called nothing yet");
  EXPECT_THAT(found.evidence, Contains(HasSubstr("host b:7601 did not answer")));
}

// As after a restart of the agent.
TEST(DiagnosisPart, RanksOfAHostWithoutARecordOfTheEpochAreNotAccused) {
  Job job;
  for (const int rank : {0, 1}) job.call(rank, 0, 14 * kSecond);
  job.traced(1).set_epoch(0);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::unanswered);
  EXPECT_THAT(found.evidence,
              Contains("host b has no record of epoch 1: what its ranks called is not known"));
}

// All are gone, and no network is at fault.
TEST(DiagnosisPart, AJobThatWasKilledWhileDataWasUnderWay) {
  Job job;
  job.all_run(5, kMillisecond, 550 * kSecond);
  for (int rank = 0; rank < 4; ++rank) job.call(rank, 5, 541 * kSecond);
  for (const int host : {0, 1}) {
    job.among_hosts(host, 5, 540 * kSecond);
    job.traced(host).set_ended(true);
    job.status.mutable_agents(host)->clear_workers();
  }
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::failed);
  EXPECT_EQ(found.sentence,
            "the job has ended in the midst of all_reduce #5, which began 9 min ago");
  EXPECT_THAT(found.evidence, ElementsAre("ranks 0-3 were in it"));
}

TEST(DiagnosisPart, AJobThatWasKilledInACallWithinAHost) {
  Job job;
  job.all_run(5, kMillisecond, 9 * kSecond);
  for (int rank = 0; rank < 4; ++rank) job.call(rank, 5, 8 * kSecond).set_flags(kRequestBlocking);
  for (const int host : {0, 1}) job.status.mutable_agents(host)->clear_workers();
  EXPECT_EQ(job.verdict().sentence,
            "the job has ended in the midst of all_reduce #5, which began 8 s ago");
}

TEST(DiagnosisPart, WhoLeftWithAWorkHandleThatNobodyAskedForHasEnded) {
  Job job;
  job.all_run(5, kMillisecond, 9 * kSecond);
  for (int rank = 0; rank < 4; ++rank) job.call(rank, 5, 8 * kSecond);
  for (const int host : {0, 1}) job.status.mutable_agents(host)->clear_workers();
  EXPECT_EQ(job.verdict().verdict, Verdict::ended);
}

// As of a host whose agent did not answer for the status.
TEST(DiagnosisPart, DataOfAHostWithoutAWorkerIsNotUnderWay) {
  Job job;
  for (int rank = 0; rank < 4; ++rank) job.call(rank, 0, 8 * kSecond);
  job.among_hosts(1, 0, 7 * kSecond);
  job.status.mutable_agents(1)->clear_workers();
  EXPECT_NE(job.verdict().verdict, Verdict::network);
}

void set_owner(Job& job, uint32_t uid, const std::string& subject = "") {
  for (const int host : {0, 1}) {
    job.worker(host).set_uid(uid);
    job.worker(host).mutable_pass()->set_subject(subject);
    job.traced(host).mutable_owner()->set_uid(uid);
    job.traced(host).mutable_owner()->set_subject(subject);
  }
}

// What both have, as an administrator sees it.
Job both(const Job& one, const Job& other) {
  Job all = one;
  for (int host = 0; host < other.status.agents_size(); ++host)
    all.status.mutable_agents(host)->mutable_workers()->MergeFrom(
        other.status.agents(host).workers());
  all.trace.MergeFrom(other.trace);
  return all;
}

// For a job whose workers are gone.
void end_in_epoch(Job& job, uint32_t epoch) {
  for (const int host : {0, 1}) {
    job.status.mutable_agents(host)->clear_workers();
    job.traced(host).set_ended(true);
    job.traced(host).set_epoch(epoch);
  }
}

TEST(DiagnosisPart, AnEndedJobOfAnotherUserIsNotMixedIn) {
  Job other;
  for (const int rank : {0, 1, 2}) other.call(rank, 0, 60 * kSecond);
  set_owner(other, 1001);
  end_in_epoch(other, 7);
  Job job;
  job.all_run(100, 10 * kMillisecond, 10 * kMillisecond);
  set_owner(job, 1002);
  const Diagnosis found = both(other, job).verdict();
  EXPECT_EQ(found.sentence, "all 4 ranks have joined and run 100 operations a second");
  EXPECT_THAT(found.evidence, ElementsAre());
}

TEST(DiagnosisPart, TheWorstOfRunningJobsOfOneNameCountsAndItsOwnersAreNamed) {
  Job well;
  well.all_run(100, 10 * kMillisecond, 10 * kMillisecond);
  set_owner(well, 1001);
  Job ill;
  for (const int rank : {0, 1, 2}) ill.call(rank, 0, 60 * kSecond);
  set_owner(ill, 1001, "bob");
  const Diagnosis found = both(well, ill).verdict();
  EXPECT_EQ(found.sentence,
            "rank 3 (host b, pid 103) is 1 operation behind, has called nothing yet");
  EXPECT_THAT(found.evidence, Contains("this is the job of user 1001 (bob)"));
  EXPECT_THAT(found.evidence, Contains("that of user 1001: all 4 ranks have joined and run 100 "
                                       "operations a second"));
}

// Rank 0 is missing in the group of all, because it waits for rank 1 in another.
TEST(DiagnosisPart, WhoWaitsInAnotherGroupIsNotTheCulprit) {
  Job job;
  job.all_run(5, kMillisecond, 9 * kSecond);
  job.add_group(0, 7, {0, 1}, 2);
  job.call(0, 0, 8 * kSecond).set_group(7);
  for (const int rank : {2, 3}) job.call(rank, 5, 8 * kSecond);
  EXPECT_THAT(job.verdict().sentence, HasSubstr("rank 1 (host a, pid 101) is 1 operation behind"));
  EXPECT_THAT(job.verdict().evidence, Each(Not(HasSubstr("rank 0 (host a"))));
}

TEST(DiagnosisPart, RanksThatWaitForEachOtherAreStillToldOf) {
  Job job;
  job.all_run(5, kMillisecond, 9 * kSecond);
  job.add_group(0, 7, {0, 1}, 2);
  job.call(0, 0, 8 * kSecond).set_group(7);
  for (const int rank : {1, 2, 3}) job.call(rank, 5, 8 * kSecond);
  EXPECT_EQ(job.verdict().verdict, Verdict::behind);
}

// Their host has started it among hosts; those of the other compute still.
TEST(DiagnosisPart, TheNetworkIsNoFaultWhileARankHasNotCalled) {
  Job job;
  job.all_run(5, 6 * kSecond, 7 * kSecond);
  for (const int rank : {0, 1}) job.call(rank, 5, 4 * kSecond);
  job.among_hosts(0, 5, 4 * kSecond);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::idle);
  EXPECT_THAT(found.sentence, HasSubstr("rank 0 (host a, pid 100) is in all_reduce #5 for 4 s"));
}

// The others ended on the error; the one that died had not called.
TEST(DiagnosisPart, RanksMissingFromAnEndedJobsLastOperationAreNamed) {
  Job job;
  job.all_run(5, kMillisecond, 9 * kSecond);
  for (const int rank : {0, 1, 2}) job.ended(rank, 5, 8 * kSecond, kMillisecond, Code::unavailable);
  job.status.clear_agents();
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::operation_failed);
  EXPECT_THAT(found.sentence, StartsWith("rank 3 (host b"));
  EXPECT_THAT(found.sentence,
              HasSubstr("took no part in all_reduce #5, which failed with UNAVAILABLE"));
}

// Rank 3 had not called it: that is not why it failed. The refused call has no tensor.
TEST(DiagnosisPart, ARefusedCallIsNamedWhateverItsCode) {
  for (const Code code :
       {Code::invalid_argument, Code::resource_exhausted, Code::failed_precondition}) {
    Job job;
    job.all_run(5, kMillisecond, 9 * kSecond);
    for (const int rank : {0, 1}) job.ended(rank, 5, 8 * kSecond, kMillisecond, code);
    v1::TracedOperation& refused = job.ended(2, 5, 8 * kSecond, kMillisecond, code);
    refused.set_flags(kRequestRefused);
    refused.set_count(0);
    const Diagnosis found = job.verdict();
    EXPECT_EQ(found.verdict, Verdict::operation_failed);
    EXPECT_EQ(found.sentence,
              "the call of rank 2 (host b, pid 102) to all_reduce #5 was refused with " +
                  std::string(name_of(code)));
    EXPECT_EQ(found.evidence.size(), 2u);
  }
}

TEST(DiagnosisPart, ACallThatTheWorkerRefusedIsNotBlamedOnWhoDidNotCall) {
  Job job;
  job.all_run(5, kMillisecond, 9 * kSecond);
  for (const int rank : {0, 1, 2})
    job.ended(rank, 5, 8 * kSecond, kMillisecond, Code::invalid_argument);
  EXPECT_THAT(job.verdict().sentence,
              StartsWith("the call of a rank to all_reduce #5 was refused"));
}

// As after its coordinator lost its state.
TEST(DiagnosisPart, ARunningEpochCountsMoreThanAnEndedOneOfAHigherNumber) {
  Job old;
  for (const int rank : {0, 1, 2}) old.call(rank, 0, 60 * kSecond);
  end_in_epoch(old, 7);
  Job job;
  job.all_run(100, 10 * kMillisecond, 10 * kMillisecond);
  EXPECT_EQ(both(old, job).verdict().verdict, Verdict::running);
}

// Its ranks join; what they called before they were started again does not count.
TEST(DiagnosisPart, WhoJoinsAgainIsNotJudgedByAnEndedEpoch) {
  Job old;
  for (const int rank : {0, 1, 2}) old.call(rank, 0, 60 * kSecond);
  end_in_epoch(old, 7);
  Job job;
  job.trace.clear_hosts();
  for (const int host : {0, 1}) {
    job.worker(host).set_state("joining");
    job.worker(host).set_epoch(0);
    for (v1::RankReport& rank : *job.worker(host).mutable_ranks()) rank.set_epoch(0);
  }
  EXPECT_EQ(both(old, job).verdict().verdict, Verdict::idle);
}

}  // namespace
}  // namespace tutti::testing

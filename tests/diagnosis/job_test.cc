// The verdict on a job of made-up reports and traces: each kind, and what is none of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/base/status.h"
#include "daemon/diagnosis/diagnosis.h"
#include "proto/board.h"
#include "proto/types.h"
#include "tests/diagnosis/made_up_job.h"

namespace tutti::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Diagnosis, AnUnknownJobHasNone) {
  const Diagnosis found = diagnose("other", Job().status, Job().trace);
  EXPECT_EQ(found.verdict, Verdict::no_such_job);
  EXPECT_EQ(found.sentence, "no job other is known: see tutti status");
}

TEST(Diagnosis, NobodyCalledYet) {
  const Diagnosis found = Job().verdict();
  EXPECT_EQ(found.verdict, Verdict::idle);
  EXPECT_EQ(found.sentence, "all 4 ranks have joined, and none waits: the job is idle");
  EXPECT_THAT(found.evidence, Contains("there was no operation yet"));
}

TEST(Diagnosis, WhoOnlyComputesIsIdle) {
  Job job;
  job.all_run(20, kSecond, 60 * kSecond);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::idle);
  EXPECT_TRUE(is_healthy(found.verdict));
  EXPECT_THAT(found.evidence, Contains("the last operation was 59 s ago"));
}

TEST(Diagnosis, RunsWell) {
  Job job;
  job.all_run(100, 10 * kMillisecond, 10 * kMillisecond);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::running);
  EXPECT_EQ(found.sentence, "all 4 ranks have joined and run 100 operations a second");
}

TEST(Diagnosis, AFailedEpochNamesWhoAndWhy) {
  Job job;
  job.all_run(3, kMillisecond, kSecond);
  job.worker(0).set_state("failed: the worker of host b is lost");
  job.worker(1).set_state("failed: something else");
  v1::Departures& gone = *job.worker(0).mutable_departures();
  gone.set_epoch(1);
  gone.add_ranks(3);
  gone.mutable_cause()->set_code(14);
  gone.mutable_cause()->set_message("the worker of host b is lost");
  job.ended(0, 3, kSecond, kMillisecond, Code::unavailable);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::failed);
  EXPECT_EQ(found.sentence, "epoch 1 failed: the worker of host b is lost");
  EXPECT_THAT(found.evidence, Contains("gone: rank 3 (host b, pid 103)"));
  EXPECT_THAT(found.evidence, Contains("rank 0 (host a, pid 100): its last operation, "
                                       "all_reduce #3, was UNAVAILABLE"));
}

TEST(Diagnosis, ARankThatDiedIsNamedWhereOthersNeededIt) {
  Job job;
  job.all_run(3, kMillisecond, kSecond);
  job.worker(1).mutable_ranks()->DeleteSubrange(1, 1);
  v1::Departures& gone = *job.worker(0).mutable_departures();
  gone.set_epoch(1);
  gone.add_ranks(3);
  for (const int rank : {0, 1, 2}) job.ended(rank, 3, kSecond, kMillisecond, Code::unavailable);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::failed);
  EXPECT_EQ(found.sentence,
            "rank 3 (host b, left or ended) is gone, and all_reduce #3, which needed it, failed "
            "with UNAVAILABLE");
}

TEST(Diagnosis, WhoHasNotJoinedIsNamed) {
  Job job;
  job.trace.clear_hosts();
  for (const int host : {0, 1}) {
    job.worker(host).set_state("joining");
    job.worker(host).set_epoch(0);
    job.worker(host).set_joining_ms(host == 0 ? 14'000 : 3'000);
    for (v1::RankReport& rank : *job.worker(host).mutable_ranks()) rank.set_epoch(0);
  }
  job.worker(1).mutable_ranks()->DeleteSubrange(0, 1);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::not_joined);
  EXPECT_EQ(found.sentence, "rank 2 of 4 has not joined; the others wait for 14 s");
  EXPECT_THAT(found.evidence, Contains("host b: rank 3 joined, for 3 s"));
  EXPECT_THAT(found.evidence, Contains("host a: ranks 0, 1 joined, for 14 s"));
}

// The worker of the other host has not heard of it.
TEST(Diagnosis, ANextEpochOfFewerRanksMissesNoneOfThoseBefore) {
  Job job;
  job.worker(0).set_world_size(3);
  job.worker(0).set_joining_ms(200);
  for (v1::RankReport& rank : *job.worker(0).mutable_ranks()) rank.set_epoch(0);
  job.worker(1).clear_ranks();
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.sentence, "rank 2 of 3 has not joined; the others wait");
  EXPECT_THAT(found.evidence, Contains("host a: ranks 0, 1 joined"));
}

TEST(Diagnosis, WhyAllJoinsFailedIsSaid) {
  Job job;
  job.trace.clear_hosts();
  for (const int host : {0, 1}) {
    job.worker(host).set_state("joining");
    job.worker(host).set_epoch(0);
    job.worker(host).clear_ranks();
  }
  v1::Failure& failed = *job.worker(1).mutable_failed_join();
  failed.mutable_status()->set_message("job \"demo\": rank 3 of 4 has not joined");
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::not_joined);
  EXPECT_EQ(found.sentence, "no rank is there any more: job \"demo\": rank 3 of 4 has not joined");
  failed.mutable_status()->set_code(static_cast<int>(Code::deadline_exceeded));
  failed.set_time_ms(2);
  v1::Failure& cause = *job.worker(0).mutable_failed_join();
  cause.mutable_status()->set_code(static_cast<int>(Code::failed_precondition));
  cause.mutable_status()->set_message("the ranks disagree on the world size");
  cause.set_time_ms(1);
  EXPECT_EQ(job.verdict().sentence,
            "no rank is there any more: the ranks disagree on the world size");
}

TEST(Diagnosis, WhatIsNotKnownOfAJobThatRunsIsSaid) {
  Job job;
  job.all_run(100, 10 * kMillisecond, 1'300 * kMillisecond);
  job.status.mutable_agents(1)->set_state("unreachable: timeout");
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::running);
  EXPECT_THAT(found.sentence, HasSubstr("operations a second, the last one 1 s ago"));
  EXPECT_THAT(found.sentence, HasSubstr("; but host b (b:7601) is unreachable: timeout"));
}

TEST(Diagnosis, AnOperationThatFailedBeforeIsEvidence) {
  Job job;
  job.all_run(100, 10 * kMillisecond, 10 * kMillisecond);
  v1::Failure& failed = *job.worker(0).mutable_failure();
  job.worker(0).mutable_pass()->set_host("a");
  failed.set_epoch(1);
  failed.set_time_ms((kNow - 20 * kSecond) / kMillisecond);
  failed.mutable_status()->set_code(4);
  failed.mutable_status()->set_message("all_reduce #3 timed out after 500 ms");
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::running);
  EXPECT_THAT(found.evidence, Contains("an operation had failed 20 s ago: all_reduce #3 timed out "
                                       "after 500 ms"));
}

TEST(Diagnosis, MissingRanksOfALoneCoordinatorAreElsewhere) {
  Job job;
  job.trace.clear_hosts();
  job.status.mutable_agents()->RemoveLast();
  v1::AgentReport& agent = *job.status.mutable_agents(0);
  for (v1::RankReport& rank : *job.worker(0).mutable_ranks()) rank.set_epoch(0);
  agent.set_address("10.0.0.1:7601");
  EXPECT_THAT(job.verdict().evidence, Not(Contains(StartsWith("no other agent"))));
  agent.set_coordinator(true);
  EXPECT_THAT(job.verdict().evidence,
              Contains("no other agent is registered with host a, which coordinates; for ranks "
                       "elsewhere see tutti doctor on their hosts"));
  agent.set_coordinator_setting("head:7601");
  EXPECT_THAT(job.verdict().evidence,
              Contains("no other agent is registered with host a, which coordinates as head:7601 "
                       "leads to it; for ranks elsewhere see that getent hosts head says the same "
                       "on their hosts"));
  agent.set_address("127.0.0.1:7601");
  EXPECT_THAT(job.verdict().evidence, Not(Contains(StartsWith("no other agent"))));
}

v1::RefusedJoin& refuse(Job& job, uint32_t rank, const std::string& host, uint64_t ago_ms) {
  v1::RefusedJoin& join = *job.status.mutable_agents(0)->add_refused_joins();
  join.set_job("demo");
  join.set_rank(rank);
  join.set_host(host);
  join.mutable_status()->set_message("host " + host + " speaks protocol version 9");
  join.set_ago_ms(ago_ms);
  return join;
}

TEST(Diagnosis, TheCoordinatorsRefusalOfAMissingRankIsQuoted) {
  Job job;
  job.trace.clear_hosts();
  job.status.mutable_agents()->RemoveLast();
  job.worker(0).set_state("joining");
  job.worker(0).set_joining_ms(14'000);
  for (v1::RankReport& rank : *job.worker(0).mutable_ranks()) rank.set_epoch(0);
  refuse(job, 0, "x", 1'000);   // It has joined since.
  refuse(job, 2, "y", 80'000);  // Long before the others came.
  refuse(job, 2, "z", 2'000).set_job("other");
  EXPECT_EQ(job.verdict().sentence, "ranks 2, 3 of 4 have not joined; the others wait for 14 s");
  refuse(job, UINT32_MAX, "d", 9'000);  // It showed no pass that counts.
  refuse(job, 3, "c", 3'000);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::not_joined);
  EXPECT_EQ(found.sentence,
            "ranks 2, 3 of 4 have not joined; the others wait for 14 s; the coordinator refused "
            "host c 3 s ago: host c speaks protocol version 9");
  EXPECT_THAT(found.evidence, Contains("the coordinator refused host d 9 s ago: host d speaks "
                                       "protocol version 9"));
}

TEST(Diagnosis, HostsThatDoNotAnswerAreEvidence) {
  Job job;
  v1::AgentReport& agent = *job.status.add_agents();
  agent.set_host("c");
  agent.set_address("c:7601");
  agent.set_state("unreachable: timeout");
  EXPECT_THAT(job.verdict().evidence, Contains("host c (c:7601) is unreachable: timeout"));
  agent.clear_host();  // As of a coordinator that was never reached.
  EXPECT_THAT(job.verdict().evidence, Contains("host c:7601 is unreachable: timeout"));
}

TEST(Diagnosis, RanksThatDisagreeAreQuoted) {
  Job job;
  job.all_run(17, kMillisecond, kSecond);
  for (int rank = 0; rank < 4; ++rank)
    job.ended(rank, 17, kSecond, kMillisecond, Code::failed_precondition)
        .set_dtype(static_cast<uint32_t>(rank == 2 ? Dtype::f64 : Dtype::f32));
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::disagreement);
  EXPECT_EQ(found.sentence,
            "ranks disagree on #17: ranks 0, 1, 3 asked for all_reduce f32[100] sum; rank 2 asked "
            "for all_reduce f64[100] sum");
  EXPECT_THAT(found.evidence, Contains("rank 2 (host b, pid 102): all_reduce f64[100] sum"));
}

TEST(Diagnosis, StrategiesThatDisagreeAreQuoted) {
  Job job;
  for (int rank = 0; rank < 4; ++rank) {
    v1::TracedOperation& call =
        job.ended(rank, 0, kSecond, kMillisecond, Code::failed_precondition);
    call.set_local_strategy(TUTTI_RING);
    call.set_global_strategy(rank == 3 ? TUTTI_TREE | 4 << 4 : TUTTI_RING);
  }
  EXPECT_EQ(job.verdict().sentence,
            "ranks disagree on #0: ranks 0-2 asked for all_reduce f32[100] sum strategy=ring; rank "
            "3 asked for all_reduce f32[100] sum strategy=ring,tree:4");
}

TEST(Diagnosis, DevicesThatDisagreeAreQuoted) {
  Job job;
  for (int rank = 0; rank < 4; ++rank)
    job.ended(rank, 0, kSecond, kMillisecond, Code::failed_precondition)
        .set_flags(kRequestBlocking | (rank == 1 ? kRequestDevice : 0));
  EXPECT_EQ(job.verdict().sentence,
            "ranks disagree on #0: ranks 0, 2, 3 asked for all_reduce f32[100] sum; rank 1 asked "
            "for all_reduce f32[100] sum in GPU memory");
}

TEST(Diagnosis, ADisagreementThatIsOverIsNone) {
  Job job;
  for (int rank = 0; rank < 4; ++rank) {
    job.ended(rank, 0, 2 * kSecond, kMillisecond, Code::failed_precondition);
    job.ended(rank, 1, kSecond, kMillisecond);
  }
  EXPECT_EQ(job.verdict().verdict, Verdict::running);
}

TEST(Diagnosis, WhoIsBehindIsNamedWithProcessAndTime) {
  Job job;
  job.all_run(5, kMillisecond, 14 * kSecond);
  for (const int rank : {0, 2, 3})
    for (const uint64_t operation : {5, 6, 7}) job.call(rank, operation, 13 * kSecond);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::behind);
  EXPECT_EQ(found.sentence, "rank 1 (host a, pid 101) is 3 operations behind, last seen 13 s ago");
  EXPECT_THAT(found.evidence,
              ElementsAre("ranks 0, 2, 3 in all_reduce #5 (all_reduce f32[100] sum) for 13 s",
                          "next: py-spy dump --pid 101 on host a; tutti trace demo"));
  EXPECT_FALSE(is_healthy(found.verdict));
}

// Who copies the line into a shell runs nothing that the job's user chose.
TEST(Diagnosis, TheNextStepHasTheJobsNameAsOneWord) {
  const std::string name = "a; rm 'x'";
  Job job;
  for (const int rank : {0, 1, 2}) job.call(rank, 0, 5 * kSecond);
  for (v1::AgentReport& agent : *job.status.mutable_agents())
    for (v1::WorkerReport& worker : *agent.mutable_workers()) worker.set_job(name);
  for (v1::HostTrace& host : *job.trace.mutable_hosts()) host.set_job(name);
  EXPECT_EQ(diagnose(name, job.status, job.trace).evidence.back(),
            "next: py-spy dump --pid 103 on host b; tutti trace 'a; rm '\\''x'\\'''");
}

TEST(Diagnosis, NobodyIsBehindOneThatDied) {
  Job job;
  job.call(3, 0, 5 * kSecond);
  EXPECT_EQ(job.verdict().verdict, Verdict::behind);
  job.worker(1).mutable_ranks()->DeleteSubrange(1, 1);
  EXPECT_EQ(job.verdict().verdict, Verdict::idle);
}

TEST(Diagnosis, AJobThatWasEndedWhileItWaitedIsJudgedByItsTrace) {
  Job job;
  for (const int rank : {0, 1, 2}) job.call(rank, 0, 5 * kSecond);
  for (const int host : {0, 1}) job.status.mutable_agents(host)->clear_workers();
  EXPECT_EQ(job.verdict().sentence,
            "rank 3 (host b, left or ended) is 1 operation behind, has called nothing yet");
}

TEST(Diagnosis, WhoNeverCalledIsBehind) {
  Job job;
  for (const int rank : {0, 1, 2}) job.call(rank, 0, 5 * kSecond);
  EXPECT_EQ(job.verdict().sentence,
            "rank 3 (host b, pid 103) is 1 operation behind, has called nothing yet");
}

TEST(Diagnosis, WhoComputesAsLongAsUsualIsNotBehind) {
  Job job;
  job.all_run(10, 10 * kSecond, 8 * kSecond);
  for (const int rank : {0, 1, 2}) job.call(rank, 10, 7 * kSecond);
  EXPECT_NE(job.verdict().verdict, Verdict::behind);
}

TEST(Diagnosis, AWaitOfAMomentIsNone) {
  Job job;
  job.all_run(10, 10 * kMillisecond, 200 * kMillisecond);
  for (const int rank : {0, 1, 2}) job.call(rank, 10, 190 * kMillisecond);
  EXPECT_EQ(job.verdict().verdict, Verdict::running);
}

TEST(Diagnosis, WhoLetAnOperationTimeOutIsBehind) {
  Job job;
  job.all_run(3, kMillisecond, 40 * kSecond);
  for (const int rank : {0, 1, 2})
    job.ended(rank, 3, 35 * kSecond, 30 * kSecond, Code::deadline_exceeded);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::behind);
  EXPECT_THAT(found.sentence, HasSubstr("rank 3 (host b, pid 103) is 1 operation behind"));
  EXPECT_THAT(found.evidence,
              Contains(HasSubstr("ranks 0-2 waited in all_reduce #3 (all_reduce f32[100] sum)")));
}

TEST(Diagnosis, OnlyMembersOfASubgroupCanBeBehindInIt) {
  Job job;
  job.all_run(5, kMillisecond, 5 * kSecond);
  job.add_group(0, 7, {0, 1}, 2);
  job.call(0, 0, 4 * kSecond).set_group(7);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::behind);
  EXPECT_THAT(found.sentence, HasSubstr("rank 1 (host a, pid 101) is 1 operation behind"));
  EXPECT_THAT(found.evidence, Contains(HasSubstr("rank 0 in all_reduce #0 of group 7")));
}

TEST(Diagnosis, WhoseOlderCallsAreNotKnownIsNotAccused) {
  Job job;
  for (const int rank : {0, 1, 2}) job.call(rank, 0, 5 * kSecond);
  job.rank(3).set_recorded(9'000);
  EXPECT_NE(job.verdict().verdict, Verdict::behind);
}

TEST(Diagnosis, AWorkerThatDoesNotAnswerIsEvidence) {
  Job job;
  job.worker(1).set_pid(77);
  job.worker(1).set_silent(true);
  EXPECT_THAT(job.verdict().evidence, Contains("the worker of host b (pid 77) does not answer"));
}

TEST(Diagnosis, AJobOfALostHostIsNotIdle) {
  Job job;
  job.all_run(5, kMillisecond, 9 * kSecond);
  job.trace.mutable_hosts()->DeleteSubrange(1, 1);
  EXPECT_EQ(job.verdict().verdict, Verdict::idle) << "as after a restart";
  job.status.mutable_agents(1)->set_lost(true);
  job.status.mutable_agents(1)->set_state("lost 20 s ago");
  EXPECT_EQ(job.verdict().verdict, Verdict::unanswered);
  EXPECT_THAT(job.verdict().sentence, HasSubstr("; but host b (b:7601) was lost"));
}

TEST(Diagnosis, AWorkHandleThatNobodyAsksForIsNoWait) {
  Job job;
  job.all_run(5, kMillisecond, 9 * kSecond);
  for (int rank = 0; rank < 4; ++rank) job.call(rank, 5, 8 * kSecond);
  for (const int host : {0, 1}) {
    job.among_hosts(host, 5, 8 * kSecond).set_ended(true);
  }
  EXPECT_EQ(job.verdict().verdict, Verdict::idle);
}

TEST(Diagnosis, AFailedOperationIsNamed) {
  Job job;
  job.all_run(5, kMillisecond, kSecond);
  for (int rank = 0; rank < 4; ++rank) job.ended(rank, 5, kSecond, kMillisecond, Code::internal);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::operation_failed);
  EXPECT_EQ(found.sentence, "all_reduce #5 of rank 0 (host a, pid 100) failed with INTERNAL");
}

// Operations of 250 ms, of which rank 3 takes the last 200 ms to call. Host b's clock is a minute
// ahead.
Job late_job(uint64_t late_ns) {
  Job job;
  constexpr uint64_t kAhead = 60 * kSecond;
  job.status.mutable_agents(1)->set_time_ms((kNow + kAhead) / kMillisecond);
  for (uint64_t operation = 0; operation < 20; ++operation) {
    const uint64_t ago = (20 - operation) * 250 * kMillisecond;
    for (int rank = 0; rank < 4; ++rank) {
      const uint64_t begun = kNow - ago + (rank == 3 ? late_ns : 0) + (rank >= 2 ? kAhead : 0);
      v1::TracedOperation& call = job.ended(rank, operation, 0, kMillisecond);
      call.set_begun_ns(begun);
      call.set_duration_ns(rank == 3 ? kMillisecond : late_ns + kMillisecond);
    }
    for (const int host : {0, 1}) {
      v1::TracedOperation& moved = job.among_hosts(host, operation, 0);
      moved.set_begun_ns(kNow - ago + late_ns + (host == 1 ? kAhead : 0));
      moved.set_ended(true);
      moved.set_duration_ns(kMillisecond);
    }
  }
  return job;
}

// Rank 3 is gone, so rank 1 went, whom rank 0 then missed; no host has said so yet.
TEST(Diagnosis, WhatFailedFirstIsTheCauseOfWhatFailedAfterIt) {
  Job job;
  job.all_run(5, kMillisecond, 14 * kSecond);
  for (const int host : {0, 1}) job.add_group(host, 7, {host == 0 ? 1U : 3U}, 2);
  job.add_group(0, 8, {0, 1}, 2);
  job.ended(1, 0, 10 * kSecond, kSecond, Code::unavailable).set_group(7);
  job.ended(0, 0, 10 * kSecond, 2 * kSecond, Code::unavailable).set_group(8);
  EXPECT_EQ(job.verdict().sentence,
            "rank 3 (host b, pid 103) took no part in all_reduce #0 of group 7, which failed with "
            "UNAVAILABLE");
}

TEST(Diagnosis, WhoIsAlwaysTheLastIsLateWhateverTheClocksSay) {
  const Diagnosis found = late_job(200 * kMillisecond).verdict();
  EXPECT_EQ(found.verdict, Verdict::late_rank);
  EXPECT_EQ(found.sentence, "rank 3 is late by 200 ms in the median");
  EXPECT_THAT(found.evidence, Contains("operations come every 250 ms in the median"));
}

TEST(Diagnosis, ALittleLateIsNot) {
  EXPECT_EQ(late_job(5 * kMillisecond).verdict().verdict, Verdict::running);
}

TEST(Diagnosis, WhoWasLateInAJobThatIsQuietNowIsNot) {
  Job job = late_job(200 * kMillisecond);
  for (v1::AgentReport& agent : *job.status.mutable_agents())
    agent.set_time_ms(agent.time_ms() + 60'000);
  EXPECT_EQ(job.verdict().verdict, Verdict::idle);
}

TEST(Diagnosis, DataThatIsUnderWayForLongIsTheNetworks) {
  Job job;
  job.all_run(5, kMillisecond, 9 * kSecond);
  for (int rank = 0; rank < 4; ++rank) job.call(rank, 5, 8 * kSecond);
  job.among_hosts(1, 5, 7 * kSecond);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::network);
  EXPECT_EQ(found.sentence,
            "all ranks have called all_reduce #5, and its data is under way between hosts for 7 s");
  EXPECT_THAT(found.evidence, Contains("host b: all_reduce #5, 400 B a rank, for 7 s"));
}

TEST(Diagnosis, AJobThatAllRanksLeftHasEnded) {
  Job job;
  job.all_run(5, kMillisecond, kSecond);
  for (const int host : {0, 1}) {
    job.worker(host).set_state("ended");
    job.worker(host).clear_ranks();
  }
  EXPECT_EQ(job.verdict().verdict, Verdict::ended);
  job.status.clear_agents();  // Its workers are gone, and its trace is kept.
  EXPECT_EQ(job.verdict().verdict, Verdict::ended);
}

TEST(Diagnosis, AnOlderEpochIsForgotten) {
  Job job;
  for (int rank = 0; rank < 4; ++rank)
    job.ended(rank, 0, 9 * kSecond, kMillisecond, Code::unavailable);
  const v1::TraceReply old = job.trace;
  for (const int host : {0, 1}) {
    job.worker(host).set_epoch(2);
    job.traced(host).set_epoch(2);
    for (v1::RankTrace& rank : *job.traced(host).mutable_ranks()) rank.clear_operations();
  }
  job.trace.MergeFrom(old);
  EXPECT_EQ(job.verdict().verdict, Verdict::idle);
}

TEST(DiagnosisReport, ForPeopleAndPrograms) {
  const Diagnosis diagnosis{Verdict::behind, "rank 1 is behind", {"one\x1b", "two"}};
  EXPECT_EQ(diagnosis_text(diagnosis), "rank 1 is behind\n  one?\n  two\n");
  EXPECT_EQ(
      diagnosis_json("demo", {Verdict::idle, "nothing", {"one"}}),
      R"({"job":"demo","verdict":"idle","healthy":true,"sentence":"nothing","evidence":["one"]})");
}

}  // namespace
}  // namespace tutti::testing

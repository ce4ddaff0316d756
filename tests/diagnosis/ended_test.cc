// What is found of jobs whose workers are gone, by what agents remember of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/diagnosis/findings.h"
#include "proto/board.h"
#include "tests/diagnosis/made_up_job.h"

namespace tutti::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr int64_t kNowMs = kNow / kMillisecond;

// The workers of the job are gone for `ago_ms`; `outcome` is what the agents found then.
void end(Job& job, int64_t ago_ms, const std::string& outcome) {
  for (v1::AgentReport& agent : *job.status.mutable_agents()) {
    v1::EndedJob& ended = *agent.add_ended();
    *ended.mutable_last() = agent.workers(0);
    ended.mutable_last()->clear_ranks();
    ended.mutable_last()->set_state("ended");
    ended.mutable_last()->set_epoch(0);
    ended.mutable_last()->mutable_departures()->set_epoch(1);
    ended.set_time_ms(kNowMs - ago_ms);
    ended.set_outcome(outcome);
    ended.set_sentence("what " + agent.host() + " found");
    agent.clear_workers();
  }
  for (v1::HostTrace& host : *job.trace.mutable_hosts()) host.set_ended(true);
}

// The rank went, this long ago; with a cause, that it died.
void depart(v1::Departures& gone, uint32_t rank, int64_t ago_ms, const std::string& cause) {
  gone.add_ranks(rank);
  v1::Departure& departure = *gone.add_first();
  departure.set_rank(rank);
  departure.set_host(rank < 2 ? "a" : "b");
  departure.set_pid(100 + rank);
  departure.set_time_ms(kNowMs - ago_ms);
  departure.mutable_cause()->set_code(cause.empty() ? 0 : 14);
  departure.mutable_cause()->set_message(cause);
}

// Both hosts learned it, and their workers are gone.
void depart(Job& job, uint32_t rank, int64_t ago_ms, const std::string& cause) {
  for (v1::AgentReport& agent : *job.status.mutable_agents())
    depart(*agent.mutable_ended(0)->mutable_last()->mutable_departures(), rank, ago_ms, cause);
}

TEST(EndedDiagnosis, ARankThatDiedIsSaidToHaveDied) {
  Job job;
  job.all_run(3, kMillisecond, 21 * kSecond);
  for (const int rank : {0, 1, 2})
    job.ended(rank, 3, 20 * kSecond, kMillisecond, Code::unavailable);
  end(job, 17'000, "failed");
  depart(job, 3, 20'000, "rank 3 (host b, pid 103) died");
  for (const uint32_t rank : {0U, 1U, 2U}) depart(job, rank, 19'000, "");
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::failed);
  EXPECT_THAT(found.sentence,
              HasSubstr("rank 3 (host b, pid 103, died) is gone, and all_reduce #3"));
  EXPECT_THAT(found.evidence, Contains("rank 3 (host b, pid 103) died, 20 s ago"));
}

// As the ranks of the host learnt: the rank is on another one, which has said nothing.
v1::Failure& tell(v1::WorkerReport& worker, Code code, int culprit, const std::string& message) {
  v1::Failure& failure = *worker.mutable_failure();
  failure.set_epoch(1);
  failure.set_time_ms(kNowMs - 20'000);
  failure.mutable_status()->set_code(static_cast<int>(code));
  failure.mutable_status()->set_culprit_rank(culprit);
  failure.mutable_status()->set_message(message);
  return failure;
}

v1::WorkerReport& last_of(Job& job, int host) {
  return *job.status.mutable_agents(host)->mutable_ended(0)->mutable_last();
}

// How the last operation of rank 0 failed, as its ranks learnt; empty: not known.
std::string judged_text(const Job& job) {
  const JobView view = view_job("demo", {}, job.status, job.trace);
  const RankView& rank = view.ranks.at(0);
  const v1::Failure* told = told_failure(view, rank.host, *rank.last_ended);
  return told == nullptr ? "" : text_of(*told);
}

void forget_host(Job& job, int host) {
  job.status.mutable_agents()->DeleteSubrange(host, 1);
  job.trace.mutable_hosts()->DeleteSubrange(host, 1);
}

// Ranks 0 and 1 go because rank 3 did not call.
TEST(EndedDiagnosis, AHostThatSawTheConsequenceNamesTheCulpritOfAnother) {
  Job job;
  job.all_run(3, kMillisecond, 22 * kSecond);
  for (const int rank : {0, 1}) job.ended(rank, 3, 21 * kSecond, kSecond, Code::deadline_exceeded);
  end(job, 17'000, "failed");
  for (const uint32_t rank : {0U, 1U}) depart(job, rank, 20'000, "rank died");
  forget_host(job, 1);
  tell(last_of(job, 0), Code::deadline_exceeded, 3,
       "all_reduce #3 timed out after 1000 ms: not called by rank 3 (host b, pid 103)");
  EXPECT_EQ(job.verdict().sentence,
            "all_reduce #3 timed out after 1000 ms: not called by rank 3 (host b, pid 103)");
}

TEST(EndedDiagnosis, WhoWentFirstIsNotToBlameWhereTheRanksKnowWhoIs) {
  Job job;
  job.all_run(3, kMillisecond, 22 * kSecond);
  for (const int rank : {0, 1}) job.ended(rank, 3, 21 * kSecond, kSecond, Code::unavailable);
  end(job, 17'000, "failed");
  depart(job, 0, 20'000, "rank 0 (host a, pid 100) died");
  depart(job, 3, 20'000, "rank 3 (host b, pid 103) died");
  forget_host(job, 1);
  tell(last_of(job, 0), Code::unavailable, 3, "rank 3 (host b, pid 103) died during all_reduce #3");
  EXPECT_THAT(job.verdict().sentence, HasSubstr("rank 3 (host b, pid 103, died) is gone, and "));
  tell(last_of(job, 0), Code::unavailable, -1, "the worker of host b is lost; join again to go on");
  EXPECT_EQ(job.verdict().sentence, "the worker of host b is lost");
}

// The clocks of hosts differ, and a failure of long ago may be another operation's.
TEST(EndedDiagnosis, AFailureOfAnotherOperationIsNotQuoted) {
  Job job;
  job.all_run(3, kMillisecond, 30 * kSecond);
  for (const int rank : {0, 1}) job.ended(rank, 3, 21 * kSecond, kSecond, Code::deadline_exceeded);
  v1::Failure& own = tell(job.worker(0), Code::deadline_exceeded, -1, "the newest");
  v1::Failure& other = tell(job.worker(1), Code::deadline_exceeded, 2, "rank 2 was late before");
  constexpr int64_t kOffMs = 3'600'000;  // How much later host b's clock is.
  job.status.mutable_agents(1)->set_time_ms(kNowMs + kOffMs);
  other.set_time_ms(kNowMs + kOffMs - 90'000);
  EXPECT_EQ(judged_text(job), "the newest");
  other.set_time_ms(kNowMs + kOffMs - 20'500);
  EXPECT_EQ(judged_text(job), "rank 2 was late before") << "it is of the same and names a culprit";
  own.mutable_status()->set_code(static_cast<int>(Code::unavailable));
  other.mutable_status()->set_code(static_cast<int>(Code::unavailable));
  EXPECT_EQ(judged_text(job), "") << "it failed with another code";
}

// Where no operation is judged, the newest counts.
TEST(EndedDiagnosis, TheNewestFailureIsSaidOfAJobThatWentOn) {
  Job job;
  job.all_run(3, kMillisecond, 15 * kSecond);
  end(job, 10'000, "ok");
  tell(last_of(job, 0), Code::deadline_exceeded, -1, "the newest");
  tell(last_of(job, 1), Code::deadline_exceeded, 3, "an older one").set_time_ms(kNowMs - 50'000);
  EXPECT_THAT(job.verdict().sentence, HasSubstr("one before had failed: the newest"));
}

TEST(EndedDiagnosis, AHostWhoseRanksAgreeKnowsWhoDisagrees) {
  Job job;
  job.all_run(3, kMillisecond, 22 * kSecond);
  for (const int rank : {0, 1})
    job.ended(rank, 3, 21 * kSecond, kSecond, Code::failed_precondition);
  end(job, 17'000, "failed");
  forget_host(job, 1);
  tell(last_of(job, 0), Code::failed_precondition, 3, "rank 3 (host b, pid 103) asks for max");
  EXPECT_EQ(job.verdict().verdict, Verdict::disagreement);
  EXPECT_EQ(job.verdict().sentence, "rank 3 (host b, pid 103) asks for max");
}

TEST(EndedDiagnosis, AnOperationThatFailedInAJobThatWentOnIsSaid) {
  Job job;
  job.all_run(3, kMillisecond, 22 * kSecond);
  end(job, 17'000, "ok");
  tell(last_of(job, 0), Code::deadline_exceeded, 3, "all_reduce #1 timed out after 500 ms");
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::ended);
  EXPECT_EQ(found.sentence,
            "the job has ended; the last operation of each rank ended OK; one before had failed: "
            "all_reduce #1 timed out after 500 ms");
}

// What the ranks called is forgotten by then.
TEST(EndedDiagnosis, TheHostWhereTheFirstRankDiedSpeaks) {
  Job job;
  end(job, 17'000, "failed");
  depart(job, 3, 20'000, "rank 3 (host b, pid 103) died");
  depart(job, 0, 19'000, "rank 0 (host a, pid 100) died");
  job.trace.clear_hosts();
  EXPECT_EQ(job.verdict().sentence, "what b found");
  for (const int host : {0, 1})
    last_of(job, host).mutable_departures()->mutable_first()->SwapElements(0, 1);
  EXPECT_EQ(job.verdict().sentence, "what a found");
}

TEST(EndedDiagnosis, WhereToLookIsSaidOnceWhereTheCauseIsNotKnown) {
  Job job;
  job.all_run(3, kMillisecond, 22 * kSecond);
  end(job, 18'000, "failed");
  depart(job, 0, 20'000, "rank 0 (host a, pid 100) died");
  depart(job, 3, 21'000, "rank 3 (host b, pid 103) died");
  const std::string hint =
      "next: what rank 3 has printed; if it was killed, dmesg on host b, and oom_kill in its "
      "cgroup's memory.events";
  EXPECT_THAT(job.verdict().evidence, Contains(hint).Times(1));
  EXPECT_THAT(job.verdict().evidence, Contains(HasSubstr("dmesg")).Times(1));
}

// A rank that left because of it may have called, though its host has not said so yet.
TEST(EndedDiagnosis, WhoDiedIsNamedBeforeWhoLeft) {
  Job job;
  job.all_run(3, kMillisecond, 21 * kSecond);
  for (const int rank : {1, 2}) job.ended(rank, 3, 20 * kSecond, kMillisecond, Code::unavailable);
  end(job, 17'000, "failed");
  depart(job, 0, 20'000, "");
  depart(job, 3, 20'000, "rank 3 (host b, pid 103) died");
  for (v1::AgentReport& agent : *job.status.mutable_agents())
    agent.mutable_ended(0)->mutable_last()->mutable_departures()->clear_ranks();
  EXPECT_THAT(job.verdict().sentence,
              HasSubstr("rank 3 (host b, pid 103, died) took no part in all_reduce #3"));
}

// One of them was behind by chance; it is not to blame.
TEST(EndedDiagnosis, AJobOfWhichAllRanksWereKilledWasCutShort) {
  Job job;
  job.all_run(3, kMillisecond, 22 * kSecond);
  for (const int rank : {0, 1, 3}) job.call(rank, 3, 21 * kSecond + 10 * kMillisecond);
  for (v1::HostTrace& host : *job.trace.mutable_hosts())
    for (v1::RankTrace& rank : *host.mutable_ranks())
      for (v1::TracedOperation& call : *rank.mutable_operations())
        if (!call.ended()) call.set_flags(kRequestBlocking);
  end(job, 18'000, "failed");
  for (const uint32_t rank : {0U, 1U, 2U, 3U})
    depart(job, rank, 21'000, "rank " + std::to_string(rank) + " died");
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::failed);
  EXPECT_THAT(found.sentence, HasSubstr("the job has ended in the midst of all_reduce #3"));
  EXPECT_THAT(found.evidence, Contains("rank 2 died, 21 s ago"));
}

// As the agent of its host sees it, which knows no other's ranks.
TEST(EndedDiagnosis, ARankThatDiedInTheMidstOfAnOperationIsNamed) {
  Job job;
  job.all_run(3, kMillisecond, 22 * kSecond);
  for (const int rank : {0, 1}) job.call(rank, 3, 21 * kSecond).set_flags(kRequestBlocking);
  end(job, 18'000, "failed");
  depart(job, 1, 21'000, "rank 1 died");
  for (const uint32_t rank : {2U, 3U}) depart(job, rank, 20'900, "of the error that they got");
  job.status.mutable_agents()->RemoveLast();
  job.trace.mutable_hosts()->RemoveLast();
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::failed);
  EXPECT_THAT(found.sentence,
              HasSubstr("rank 1 (host a, pid 101) died in the midst of all_reduce #3"));
  EXPECT_THAT(found.evidence, Contains("ranks 0, 1 were in it"));
  depart(job, 0, 21'000, "rank 0 died");  // Both may have been ended.
  EXPECT_THAT(job.verdict().sentence, HasSubstr("the job has ended in the midst of"));
}

// As launchers end the other ranks after one has died, here while they wait for a slow host.
TEST(EndedDiagnosis, WhoDiedFirstInTheMidstOfAnOperationIsNamed) {
  Job job;
  job.all_run(3, kMillisecond, 22 * kSecond);
  for (const int rank : {0, 1, 2})
    job.call(rank, 3, 21 * kSecond + 10 * kMillisecond).set_flags(kRequestBlocking);
  end(job, 18'000, "failed");
  depart(job, 1, 21'000, "rank 1 died");
  for (const uint32_t rank : {0U, 2U}) depart(job, rank, 20'800, "rank died");
  EXPECT_EQ(job.verdict().sentence,
            "rank 1 (host a, pid 101) died in the midst of all_reduce #3, which began 10 ms ago; "
            "ranks 0, 2 died at least 200 ms later");
}

// The times of a host go by its own clock, and word of other hosts takes time.
TEST(EndedDiagnosis, WhoDiedFirstIsNamedByWhatTheOthersHostsSay) {
  Job job;
  job.all_run(3, kMillisecond, 22 * kSecond);
  end(job, 18'000, "failed");
  depart(job, 3, 20'000, "rank 3 (host b, pid 103) died");
  for (const uint32_t rank : {0U, 1U, 2U}) depart(job, rank, 19'940, "rank died");
  constexpr int64_t kOffMs = 3'600'000;  // How much later host b's clock is.
  job.status.mutable_agents(1)->set_time_ms(kNowMs + kOffMs);
  for (v1::Departure& one : *last_of(job, 1).mutable_departures()->mutable_first())
    one.set_time_ms(one.time_ms() + kOffMs);
  EXPECT_EQ(job.verdict().sentence,
            "rank 3 (host b, pid 103) died without leaving the job; ranks 0-2 died at least 60 ms "
            "later");
  EXPECT_THAT(job.verdict().evidence, Contains(HasSubstr("next: what rank 3 has printed")));
  forget_host(job, 0);
  EXPECT_EQ(job.verdict().sentence, "ranks 0-3 died without leaving the job")
      << "host b may have learnt late of ranks 0 and 1";
  for (v1::Departure& one : *last_of(job, 0).mutable_departures()->mutable_first())
    if (one.rank() != 3) one.set_time_ms(one.time_ms() + 200);
  EXPECT_EQ(job.verdict().sentence,
            "rank 3 (host b, pid 103) died without leaving the job; ranks 0-2 died at least 60 ms "
            "later");
}

// Workers outlive their ranks by worker_idle_ms.
TEST(EndedDiagnosis, ARankThatDiedIsNamedWhileTheWorkersAreThere) {
  Job job;
  job.all_run(3, kMillisecond, 2 * kSecond);
  for (const int host : {0, 1}) {
    job.worker(host).set_state("ended");
    job.worker(host).clear_ranks();
    job.worker(host).mutable_departures()->set_epoch(1);
    depart(*job.worker(host).mutable_departures(), 0, 1'000, "");
    depart(*job.worker(host).mutable_departures(), 1, 900, "rank 1 died");
  }
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::failed);
  EXPECT_THAT(found.sentence, HasSubstr("rank 1 (host a, pid 101) died without leaving the job"));
}

// The others waited for long before all of them were ended.
TEST(EndedDiagnosis, ARankThatOthersWaitedForToTheEndIsNamed) {
  Job job;
  job.all_run(3, kMillisecond, 60 * kSecond);
  for (const int rank : {0, 1, 3}) job.call(rank, 3, 50 * kSecond);
  end(job, 18'000, "failed");
  for (const uint32_t rank : {0U, 1U, 2U, 3U})
    depart(job, rank, 20'000, "rank " + std::to_string(rank) + " died");
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::behind);
  EXPECT_THAT(found.sentence, HasSubstr("rank 2 (host b, pid 102, died) is 1 operation behind"));
  EXPECT_THAT(found.evidence, Contains(HasSubstr("in all_reduce #3")));
}

// Nobody waited for it: it counts all the same.
TEST(EndedDiagnosis, RanksThatDiedBetweenOperationsHaveFailed) {
  Job job;
  job.all_run(3, kMillisecond, 22 * kSecond);
  end(job, 18'000, "failed");
  depart(job, 0, 21'000, "rank 0 (host a, pid 100) died");
  depart(job, 1, 21'000, "");
  depart(job, 3, 21'000, "rank 3 (host b, pid 103) died");
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::failed);
  EXPECT_EQ(found.sentence, "ranks 0, 3 died without leaving the job");
  EXPECT_THAT(found.evidence, Contains("rank 0 (host a, pid 100) died, 21 s ago"));
}

TEST(EndedDiagnosis, ARankThatDiedAloneIsNamedWithItsHostAndProcess) {
  Job job;
  job.all_run(3, kMillisecond, 22 * kSecond);
  end(job, 18'000, "failed");
  depart(job, 1, 21'000, "rank 1 (host a, pid 101) died");
  for (const uint32_t rank : {0U, 2U, 3U}) depart(job, rank, 18'000, "");
  EXPECT_EQ(job.verdict().sentence, "rank 1 (host a, pid 101) died without leaving the job");
}

TEST(EndedDiagnosis, NothingIsSaidOfRanksThatAreNotKnown) {
  Job job;
  job.all_run(3, kMillisecond, 22 * kSecond);
  end(job, 18'000, "ok");
  for (const uint32_t rank : {0U, 1U, 2U, 3U}) depart(job, rank, 21'000, "");
  EXPECT_EQ(job.verdict().sentence, "the job has ended; the last operation of each rank ended OK");
  job.trace.mutable_hosts()->DeleteSubrange(1, 1);
  EXPECT_EQ(job.verdict().sentence, "the job has ended; the last operation of ranks 0, 1 ended OK");
}

TEST(EndedDiagnosis, AJobThatSomebodyStoppedHasNotFailed) {
  Job job;
  job.all_run(3, kMillisecond, 22 * kSecond);
  end(job, 18'000, "stopped");
  v1::StatusMessage& cause = *job.status.mutable_agents(0)
                                  ->mutable_ended(0)
                                  ->mutable_last()
                                  ->mutable_departures()
                                  ->mutable_cause();
  cause.set_code(14);
  cause.set_message("job \"demo\" was stopped by user 0");
  EXPECT_EQ(job.verdict().verdict, Verdict::ended);
  EXPECT_EQ(job.verdict().sentence, "the job has ended: job \"demo\" was stopped by user 0");
}

TEST(MeshOfNodes, ThatReachNoCoordinatorOrShareANameFail) {
  Job job;
  v1::AgentReport& b = *job.status.mutable_agents(1);
  b.set_coordinator_address("a:7601");
  b.set_coordinator_state("unreachable for 3 s: the coordinator a:7601 refuses this agent");
  const MeshDiagnosis cut_off = diagnose_mesh(job.status, job.trace);
  EXPECT_EQ(cut_off.nodes[1], Grade::fail);
  EXPECT_THAT(mesh_diagnosis_text(cut_off),
              HasSubstr("Node b         takes no joins: its coordinator a:7601 is unreachable for "
                        "3 s: the coordinator a:7601 refuses this agent"));
  b.set_coordinator_state("connected");
  b.set_protocol(8);
  EXPECT_THAT(mesh_diagnosis_text(diagnose_mesh(job.status, job.trace)),
              HasSubstr("Node b         has a run_dir that is full or cannot be written"));
  b.set_run_dir_free_bytes(1 << 30);
  b.set_descriptors(63);
  b.set_descriptors_max(64);
  EXPECT_THAT(mesh_diagnosis_text(diagnose_mesh(job.status, job.trace)),
              HasSubstr("Node b         has 63 of 64 descriptors open; raise LimitNOFILE"));
  b.set_descriptors(6);
  job.status.mutable_agents(0)->set_coordinator(true);
  b.set_time_ms(b.time_ms() + 61'000);
  EXPECT_THAT(mesh_diagnosis_text(diagnose_mesh(job.status, job.trace)),
              HasSubstr("Node b         has a clock that is 61 s ahead of that of a"));
  b.set_time_ms(b.time_ms() - 61'000);
  EXPECT_THAT(mesh_diagnosis_text(diagnose_mesh(job.status, job.trace)), HasSubstr("0 problems"));
  b.set_host("a");
  EXPECT_THAT(mesh_diagnosis_text(diagnose_mesh(job.status, job.trace)),
              HasSubstr("Node a         is the name of two agents"));
}

TEST(EndedDiagnosis, NothingIsSlowOrLateAnyMore) {
  Job job;
  for (uint64_t operation = 0; operation < 20; ++operation)
    for (int rank = 0; rank < 4; ++rank)
      job.ended(rank, operation, kSecond * (21 - operation) - (rank == 3 ? kSecond / 2 : 0),
                kMillisecond);
  EXPECT_EQ(job.verdict().verdict, Verdict::late_rank);
  end(job, 500, "ok");
  EXPECT_EQ(job.verdict().verdict, Verdict::ended);
}

TEST(EndedDiagnosis, AWorkerThatCrashedIsTheCause) {
  Job job;
  job.all_run(3, kMillisecond, kSecond);
  v1::AgentReport& b = *job.status.mutable_agents(1);
  v1::EndedJob& ended = *b.add_ended();
  *ended.mutable_last() = b.workers(0);
  ended.mutable_last()->set_pid(4711);
  ended.set_worker_end("was killed by signal 9");
  ended.set_outcome("failed");
  b.clear_workers();
  job.worker(0).set_state("failed: the worker of host b is lost");
  EXPECT_EQ(job.verdict().sentence,
            "epoch 1 failed: the worker of host b (pid 4711) was killed by signal 9");
  EXPECT_THAT(job.verdict().evidence,
              Contains("next: dmesg on host b, and oom_kill in its cgroup's memory.events"));
}

TEST(EndedDiagnosis, WhatRanksCalledIsForgottenBeforeTheJobIs) {
  Job job;
  end(job, 3'600'000, "ok");
  job.trace.clear_hosts();
  job.status.mutable_agents(1)->mutable_ended(0)->set_outcome("failed");
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::failed);
  EXPECT_EQ(found.sentence, "what b found");
  EXPECT_THAT(found.evidence, Contains("host a: its worker ended 60 min ago"));
}

TEST(EndedDiagnosis, AJobThatNeverBeganHasNotJoined) {
  Job job;
  end(job, 5'000, "failed");
  job.trace.clear_hosts();
  for (v1::AgentReport& agent : *job.status.mutable_agents())
    agent.mutable_ended(0)->mutable_last()->mutable_departures()->set_epoch(0);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::not_joined);
  EXPECT_EQ(found.sentence, "the job has ended before all of its 4 ranks had joined");
  last_of(job, 1).mutable_failed_join()->mutable_status()->set_message("host b shows no pass");
  EXPECT_EQ(job.verdict().sentence,
            "the job has ended before all of its 4 ranks had joined: host b shows no pass");
}

TEST(EndedDiagnosis, WhyAJobDidNotGoOnIsSaidOnce) {
  Job job;
  job.all_run(3, kMillisecond, 22 * kSecond);
  end(job, 18'000, "ok");
  last_of(job, 1).mutable_failed_join()->mutable_status()->set_message("host b shows no pass");
  const std::string sentence =
      "the job has ended; the last operation of each rank ended OK; a join failed: host b shows no "
      "pass";
  EXPECT_EQ(job.verdict().sentence, sentence);
  job.trace.clear_hosts();
  for (v1::AgentReport& agent : *job.status.mutable_agents())
    agent.mutable_ended(0)->set_sentence(sentence);
  EXPECT_EQ(job.verdict().sentence, sentence);
}

// Another run of the name on host a, before the first rank of which all had joined.
void end_without_joining(Job& job, int64_t started_ago_ms, int64_t ago_ms) {
  v1::AgentReport& a = *job.status.mutable_agents(0);
  v1::EndedJob& ended = *a.add_ended() = a.ended(0);
  ended.mutable_last()->clear_departures();
  ended.mutable_last()->set_started_ms(kNowMs - started_ago_ms);
  ended.set_time_ms(kNowMs - ago_ms);
  ended.set_outcome("failed");
}

TEST(EndedDiagnosis, ARunThatNeverBeganIsNotJudgedByAnEarlierOne) {
  Job job;
  job.all_run(3, kMillisecond, 62 * kSecond);
  end(job, 60'000, "ok");
  EXPECT_TRUE(diagnose_mesh(job.status, {}).failed.empty());
  end_without_joining(job, 40'000, 5'000);
  const Diagnosis found = job.verdict();
  EXPECT_EQ(found.verdict, Verdict::not_joined);
  EXPECT_EQ(found.sentence, "the job has ended before all of its 4 ranks had joined");
  EXPECT_EQ(diagnose_mesh(job.status, {}).failed.size(), 1U);
}

TEST(EndedDiagnosis, WhatNeverBeganDoesNotJudgeALaterRun) {
  Job job;
  job.all_run(3, kMillisecond, 62 * kSecond);
  end(job, 60'000, "ok");
  end_without_joining(job, 190'000, 180'000);
  for (const int host : {0, 1}) last_of(job, host).set_started_ms(kNowMs - 90'000);
  EXPECT_EQ(job.verdict().verdict, Verdict::ended);
  EXPECT_TRUE(diagnose_mesh(job.status, {}).failed.empty());
}

// Rank 3 skips an operation of the group of ranks 2 and 3 and leaves; the others go one by one.
TEST(EndedDiagnosis, TheFirstFailureNamesTheCulprit) {
  Job job;
  job.all_run(3, kMillisecond, 23 * kSecond);
  job.add_group(1, 7, {2, 3}, 2);
  job.ended(2, 0, 21 * kSecond, kSecond, Code::unavailable).set_group(7);
  job.ended(0, 3, 20 * kSecond, kSecond, Code::unavailable);
  end(job, 17'000, "failed");
  depart(job, 1, 20'500, "");
  depart(job, 3, 20'300, "");
  depart(job, 2, 19'500, "");
  depart(job, 0, 18'000, "");
  EXPECT_EQ(job.verdict().sentence,
            "rank 3 (host b, pid 103, left) is gone, and all_reduce #0 of group 7, which needed "
            "it, failed with UNAVAILABLE");
}

// As launchers end the other ranks after one has failed.
TEST(EndedDiagnosis, WhoLeftBeforeTheOthersWereKilledIsNamed) {
  Job job;
  job.all_run(3, kMillisecond, 22 * kSecond);
  end(job, 17'000, "failed");
  depart(job, 2, 20'000, "");
  for (const uint32_t rank : {0U, 1U}) depart(job, rank, 19'000, "rank died");
  depart(job, 3, 18'000, "");
  EXPECT_EQ(job.verdict().sentence,
            "ranks 0, 1 died without leaving the job; before them rank 2 (host b, pid 102, left) "
            "had left");
}

TEST(EndedDiagnosis, ARunningJobIsNotJudgedByAnEarlierRun) {
  Job job;
  job.all_run(100, 10 * kMillisecond, 10 * kMillisecond);
  v1::AgentReport& a = *job.status.mutable_agents(0);
  v1::EndedJob& ended = *a.add_ended();
  *ended.mutable_last() = a.workers(0);
  ended.set_worker_end("was killed by signal 9");
  for (v1::WorkerReport* worker : {&job.worker(0), &job.worker(1)}) worker->set_epoch(2);
  for (v1::HostTrace& host : *job.trace.mutable_hosts()) host.set_epoch(2);
  EXPECT_EQ(job.verdict().verdict, Verdict::running);
}

TEST(EndedDiagnosis, TheMeshNamesJobsThatFailedAndAreGone) {
  Job job;
  end(job, 5'000, "failed");
  const MeshDiagnosis mesh = diagnose_mesh(job.status, {});
  ASSERT_EQ(mesh.failed.size(), 1U);
  EXPECT_EQ(mesh.failed[0].first, "demo");
  EXPECT_TRUE(mesh.jobs.empty());
  EXPECT_EQ(grade_of(mesh), Grade::ok);
  EXPECT_EQ(mesh_diagnosis_text(mesh),
            "0 problems, 0 warnings in 0 jobs and 2 nodes; failed and gone: demo (see tutti jobs "
            "--all)\n");
}

TEST(EndedDiagnosis, TheMeshIsSaidTheWorstFirst) {
  Job job;
  job.all_run(3, kMillisecond, 60 * kSecond);
  for (const int rank : {0, 1, 3}) job.call(rank, 3, 50 * kSecond);
  job.status.mutable_agents(1)->set_state("unreachable: timeout");
  const std::string text = mesh_diagnosis_text(diagnose_mesh(job.status, job.trace));
  EXPECT_THAT(text, ::testing::StartsWith("FAIL  Node b         is unreachable: timeout\n"
                                          "WARN  demo           rank 2 (host b, pid 102) is 1 "));
  EXPECT_THAT(text, ::testing::EndsWith("\n1 problem, 1 warning in 1 job and 2 nodes\n"));
}

}  // namespace
}  // namespace tutti::testing

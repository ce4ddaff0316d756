// What is found of a mesh: of its nodes, its jobs, and each rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/diagnosis/diagnosis.h"
#include "tests/diagnosis/made_up_job.h"

namespace tutti::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

MeshDiagnosis found_of(const Job& job) { return diagnose_mesh(job.status, job.trace); }

std::vector<std::string> doings(const MeshDiagnosis& mesh) {
  std::vector<std::string> all;
  for (const RankDiagnosis& rank : mesh.jobs.at(0).ranks) all.push_back(rank.doing);
  return all;
}

std::vector<uint64_t> behind(const MeshDiagnosis& mesh) {
  std::vector<uint64_t> all;
  for (const RankDiagnosis& rank : mesh.jobs.at(0).ranks) all.push_back(rank.behind);
  return all;
}

TEST(DiagnosisMesh, AHealthyJobHasNoAlarm) {
  Job job;
  job.all_run(100, 10 * kMillisecond, 10 * kMillisecond);
  const MeshDiagnosis mesh = found_of(job);
  EXPECT_THAT(mesh.alarms, IsEmpty());
  EXPECT_THAT(mesh.nodes, ElementsAre(Grade::ok, Grade::ok));
  ASSERT_THAT(mesh.jobs, SizeIs(1));
  EXPECT_EQ(mesh.jobs[0].key.first, "demo");
  EXPECT_EQ(mesh.jobs[0].diagnosis.verdict, Verdict::running);
  EXPECT_THAT(doings(mesh), ElementsAre("", "", "", ""));
  EXPECT_EQ(mesh.jobs[0].missing, 0u);
}

TEST(DiagnosisMesh, ANodeToWhichAnothersNameLeadsIsDoubtfulWhileRanksWaitAndNoAlarm) {
  Job job;
  job.trace.clear_hosts();
  job.status.mutable_agents()->RemoveLast();
  v1::AgentReport& agent = *job.status.mutable_agents(0);
  agent.set_address("10.0.0.1:7601");
  agent.set_coordinator(true);
  agent.set_coordinator_setting("head:7601");
  EXPECT_EQ(found_of(job).doubtful_coordinator, "") << "nobody waits";
  for (v1::RankReport& rank : *job.worker(0).mutable_ranks()) rank.set_epoch(0);
  const MeshDiagnosis mesh = found_of(job);
  EXPECT_EQ(mesh.doubtful_coordinator, "a");
  EXPECT_THAT(mesh.nodes, ElementsAre(Grade::ok)) << "it may be an alias";
  EXPECT_THAT(mesh.alarms, IsEmpty());
  for (const std::string own :
       {"", "a:7601", "a.example.org:7601", "10.0.0.1:7601", "[::2]:7601"}) {
    agent.set_coordinator_setting(own);
    EXPECT_EQ(found_of(job).doubtful_coordinator, "") << own;
  }
  agent.set_coordinator_setting("head:7601");
  job.status.add_agents()->set_host("b");
  EXPECT_EQ(found_of(job).doubtful_coordinator, "") << "another is registered";
}

TEST(DiagnosisMesh, RanksWaitForThoseThatHaveNotCalled) {
  Job job;
  job.all_run(17, kMillisecond, kSecond / 2);
  for (const int rank : {0, 1, 2}) job.call(rank, 17, kSecond / 4);
  MeshDiagnosis mesh = found_of(job);
  EXPECT_THAT(doings(mesh),
              ElementsAre("waits for rank 3", "waits for rank 3", "waits for rank 3", ""));
  EXPECT_TRUE(mesh.jobs[0].ranks[0].waits);
  EXPECT_THAT(behind(mesh), ElementsAre(0, 0, 0, 0)) << "nobody has waited for a second";
  job.call(3, 17, kMillisecond);
  mesh = found_of(job);
  EXPECT_THAT(doings(mesh), ElementsAre("in all_reduce #17", "in all_reduce #17",
                                        "in all_reduce #17", "in all_reduce #17"));
  EXPECT_FALSE(mesh.jobs[0].ranks[0].waits);
}

TEST(DiagnosisMesh, ARankIsBehindAsTheVerdictSays) {
  Job job;
  job.all_run(17, kMillisecond, 15 * kSecond);
  for (const int rank : {0, 1, 2})
    for (const uint64_t operation : {17, 18}) job.call(rank, operation, 14 * kSecond);
  const MeshDiagnosis mesh = found_of(job);
  EXPECT_EQ(mesh.jobs[0].diagnosis.verdict, Verdict::behind);
  EXPECT_THAT(behind(mesh), ElementsAre(0, 0, 0, 2));
  EXPECT_THAT(mesh.alarms, IsEmpty()) << "operations go on when it comes";
}

TEST(DiagnosisMesh, RanksAreBehindWithinAGroup) {
  Job job;
  job.all_run(1, kMillisecond, 40 * kSecond);
  job.add_group(0, 7, {0}, 1);
  for (uint64_t number = 0; number < 30; ++number)
    job.ended(0, number, 30 * kSecond, kMillisecond).set_group(7);
  EXPECT_THAT(behind(found_of(job)), ElementsAre(0, 0, 0, 0));
}

TEST(DiagnosisMesh, OlderCallsThatAreNotShownAreNotMissing) {
  Job job;
  for (const int rank : {0, 1, 2}) job.call(rank, 17, 14 * kSecond);
  for (uint64_t number = 0; number < 40; ++number)
    job.ended(3, number, 10 * kSecond, kMillisecond).set_group(8);
  job.rank(3).set_recorded(58);
  const MeshDiagnosis mesh = found_of(job);
  EXPECT_THAT(behind(mesh), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(doings(mesh),
              ElementsAre("in all_reduce #17", "in all_reduce #17", "in all_reduce #17", ""));
}

TEST(DiagnosisMesh, LatenessIsAgainstTheMiddleOfTheOthers) {
  Job job;
  for (uint64_t operation = 0; operation < 8; ++operation)
    for (int rank = 0; rank < 4; ++rank)
      job.ended(rank, operation,
                (10 - operation) * 100 * kMillisecond - (rank == 2 ? 30 * kMillisecond : 0),
                kMillisecond);
  const std::vector<RankDiagnosis> ranks = found_of(job).jobs.at(0).ranks;
  EXPECT_NEAR(ranks[2].late_s.value(), 0.03, 1e-6);
  EXPECT_TRUE(ranks[2].is_late);
  EXPECT_NEAR(ranks[0].late_s.value(), 0, 1e-6);
  EXPECT_FALSE(ranks[0].is_late);
}

TEST(DiagnosisMesh, AlarmsAreOfNodesGpusAndJobsThatFail) {
  Job job;
  job.status.mutable_agents(1)->set_state("draining");
  v1::Gpu& gpu = *job.status.mutable_agents(0)->add_gpus();
  gpu.set_index(3);
  gpu.set_failed(true);
  gpu.set_state("failed: XID 79");
  job.worker(0).set_state("failed: the worker of host b is lost");
  v1::AgentReport& lost = *job.status.add_agents();
  lost.set_address("10.0.0.9:7601");
  lost.set_state("unreachable: timeout");
  const MeshDiagnosis mesh = found_of(job);
  EXPECT_THAT(mesh.nodes, ElementsAre(Grade::ok, Grade::warn, Grade::fail));
  std::vector<std::string> alarms;
  for (const Alarm& alarm : mesh.alarms) alarms.push_back(alarm.subject + " " + alarm.finding);
  EXPECT_THAT(alarms,
              ElementsAre("GPU 3 of a failed: XID 79", "Node 10.0.0.9:7601 is unreachable: timeout",
                          "Job demo epoch 1 failed: the worker of host b is lost"));
}

TEST(DiagnosisMesh, ALostNodeIsAnAlarmAndEvidenceOfItsJobsAlone) {
  Job job;
  job.all_run(100, 10 * kMillisecond, 10 * kMillisecond);
  v1::AgentReport& lost = *job.status.mutable_agents(1);
  lost.set_state("lost 20 s ago");
  lost.set_lost(true);
  lost.clear_time_ms();
  job.trace.mutable_hosts()->RemoveLast();
  const std::string said =
      "host b (b:7601) was lost 20 s ago: its agent ended or cannot be reached; what its ranks "
      "called is not known";
  MeshDiagnosis mesh = found_of(job);
  EXPECT_THAT(mesh.nodes, ElementsAre(Grade::ok, Grade::fail));
  ASSERT_THAT(mesh.alarms, SizeIs(1));
  EXPECT_EQ(mesh.alarms[0].subject, "Node b");
  EXPECT_EQ(mesh.alarms[0].finding, "was lost 20 s ago: its agent ended or cannot be reached");
  EXPECT_THAT(mesh.jobs.at(0).diagnosis.evidence, Contains(said));
  EXPECT_THAT(mesh.jobs.at(0).diagnosis.evidence, Not(Contains(HasSubstr("has no record"))));
  EXPECT_THAT(mesh.jobs.at(0).ranks, SizeIs(4));
  lost.mutable_workers(0)->set_job("other");
  mesh = found_of(job);
  ASSERT_EQ(mesh.jobs.at(0).key.first, "demo");
  EXPECT_THAT(mesh.jobs[0].diagnosis.evidence, Not(Contains(HasSubstr("was lost"))));
}

TEST(DiagnosisMesh, RanksThatLeftAndRanksThatHaveNotCome) {
  Job job;
  job.worker(1).mutable_ranks()->RemoveLast();
  job.worker(1).mutable_ranks()->RemoveLast();
  v1::Departures& gone = *job.worker(1).mutable_departures();
  gone.set_epoch(1);
  gone.add_ranks(3);
  const JobDiagnosis found = found_of(job).jobs.at(0);
  EXPECT_THAT(found.gone, ElementsAre(3));
  EXPECT_EQ(found.missing, 1u);
  EXPECT_THAT(found.ranks, SizeIs(2));
}

TEST(DiagnosisMesh, JobsOfOneNameAreJudgedByOwner) {
  Job job;
  v1::WorkerReport& other = *job.status.mutable_agents(0)->add_workers();
  other.set_job("demo");
  other.mutable_pass()->set_subject("alice");
  other.set_state("failed: it ran out of memory");
  const MeshDiagnosis mesh = found_of(job);
  ASSERT_THAT(mesh.jobs, SizeIs(2));
  EXPECT_EQ(mesh.jobs[0].diagnosis.verdict, Verdict::idle);
  EXPECT_EQ(mesh.jobs[1].key.second.subject, "alice");
  EXPECT_EQ(mesh.jobs[1].diagnosis.verdict, Verdict::failed);
}

// Trainers write their traces, and workers their reports, themselves.
TEST(DiagnosisMesh, ReportsThatCannotBeAreBorne) {
  Job job;
  job.worker(0).set_world_size(UINT32_MAX);
  v1::TracedOperation& call = job.call(0, UINT64_MAX, 14 * kSecond);
  call.set_group(77);
  call.set_collective(99);
  call.set_begun_ns(UINT64_MAX);
  v1::TracedOperation& failed = job.ended(1, 5, kSecond, UINT64_MAX, Code::internal);
  failed.set_group(78);
  failed.set_dtype(99);
  EXPECT_EQ(found_of(job).jobs.at(0).missing, 65'535u - 4);
}

TEST(DiagnosisMesh, ForProgramsItIsJson) {
  Job job;
  job.call(0, 0, kSecond / 2);
  job.status.mutable_agents(1)->clear_workers();
  EXPECT_THAT(mesh_diagnosis_json(found_of(job)),
              StartsWith(R"({"alarms":[],"nodes":["OK","OK"],"jobs":[{"job":"demo","uid":0,)"));
  EXPECT_THAT(mesh_diagnosis_json(found_of(job)),
              HasSubstr(R"("grade":"OK","ranks":[{"rank":0,"doing":"waits for ranks 1-3",)"
                        R"("waits":true,"behind":0,"late":false},)"));
  EXPECT_THAT(mesh_diagnosis_json(found_of(job)), HasSubstr(R"("gone":[],"missing":2}]})"));
}

}  // namespace
}  // namespace tutti::testing

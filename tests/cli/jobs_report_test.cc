// `tutti jobs`.
#include "daemon/cli/jobs_report.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

v1::EndedJob& end(v1::AgentReport& agent, const std::string& job, uint32_t epoch,
                  const std::string& outcome, int64_t ago_ms) {
  v1::EndedJob& ended = *agent.add_ended();
  ended.mutable_last()->set_job(job);
  ended.mutable_last()->set_uid(7);
  ended.mutable_last()->set_world_size(4);
  ended.mutable_last()->mutable_departures()->set_epoch(epoch);
  ended.set_outcome(outcome);
  ended.set_sentence(agent.host() + " says " + outcome);
  ended.set_time_ms(agent.time_ms() - ago_ms);
  return ended;
}

v1::StatusReply two_agents() {
  v1::StatusReply status;
  for (const char* host : {"a", "b"}) {
    v1::AgentReport& agent = *status.add_agents();
    agent.set_host(host);
    agent.set_state("serving");
    agent.set_time_ms(1'000'000);
  }
  return status;
}

TEST(JobsReport, ARunThatFailedOnOneHostHasFailed) {
  v1::StatusReply status = two_agents();
  end(*status.mutable_agents(0), "bert", 1, "ok", 90'000);
  end(*status.mutable_agents(1), "bert", 1, "failed", 93'000);
  end(*status.mutable_agents(0), "bert", 2, "ok", 20'000);
  const std::vector<JobRow> jobs = jobs_of(status, diagnose_mesh(status, {}), true);
  EXPECT_EQ(jobs_text(jobs),
            "JOB   USER  RANKS  HOSTS  ENDED     STATE   FINDING\n"
            "bert     7      4  a      20 s ago  ok      a says ok\n"
            "bert     7      4  a,b    90 s ago  failed  b says failed\n");
  EXPECT_EQ(jobs_json({jobs[1]}),
            R"({"jobs":[{"job":"bert","uid":7,"subject":"","state":"failed","hosts":"a,b",)"
            R"("ranks":4,"finding":"b says failed","ended_s":90}]})");
}

TEST(JobsReport, WithinASecondTheLatestIsFirst) {
  v1::StatusReply status = two_agents();
  end(*status.mutable_agents(0), "a", 1, "ok", 20'900);
  end(*status.mutable_agents(0), "b", 1, "ok", 20'100);
  end(*status.mutable_agents(0), "b", 2, "ok", 20'100);
  std::vector<std::string> order;
  for (const JobRow& job : jobs_of(status, diagnose_mesh(status, {}), true))
    order.push_back(job.key.first + std::to_string(job.epoch));
  EXPECT_EQ(order, (std::vector<std::string>{"b2", "b1", "a1"}));
}

TEST(JobsReport, ThoseThatRunAloneAreListedWithoutAll) {
  v1::StatusReply status = two_agents();
  end(*status.mutable_agents(0), "bert", 1, "ok", 90'000);
  EXPECT_EQ(jobs_text(jobs_of(status, diagnose_mesh(status, {}), false)), "no jobs\n");
  v1::WorkerReport& worker = *status.mutable_agents(1)->add_workers();
  worker.set_job("llm");
  worker.set_world_size(2);
  worker.set_state("running");
  const std::vector<JobRow> jobs = jobs_of(status, diagnose_mesh(status, {}), true);
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs[0].key.first, "llm");
  EXPECT_EQ(jobs[0].hosts, "b");
  EXPECT_EQ(jobs[0].ended_ms, -1);
}

}  // namespace
}  // namespace tutti

// What an agent remembers of jobs whose workers are gone.
#include "daemon/agent/ended_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/board.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

v1::WorkerReport last_of(const std::string& job, uint32_t uid) {
  v1::WorkerReport last;
  last.set_job(job);
  last.set_uid(uid);
  last.mutable_pass()->set_host("a");
  last.set_world_size(2);
  last.set_state("ended");
  last.mutable_departures()->set_epoch(1);
  last.set_failures(3);
  last.set_ranks_died(1);
  return last;
}

v1::TraceReply trace_of(const std::string& job, uint32_t uid, Code code) {
  v1::TraceReply trace;
  v1::HostTrace& host = *trace.add_hosts();
  host.set_host("a");
  host.set_job(job);
  host.mutable_owner()->set_uid(uid);
  host.set_epoch(1);
  host.set_world_size(2);
  host.set_ended(true);
  for (const uint32_t rank : {0U, 1U}) {
    v1::RankTrace& traced = *host.add_ranks();
    traced.set_rank(rank);
    v1::TracedOperation& call = *traced.add_operations();
    call.set_ended(true);
    call.set_code(static_cast<uint32_t>(code));
  }
  return trace;
}

class EndedJobsTest : public ::testing::Test {
 protected:
  v1::AgentReport report() const {
    v1::AgentReport report;
    jobs_.report(report);
    return report;
  }
  Settings settings_{.trace_jobs = 3};
  EndedJobs jobs_{settings_};
};

TEST_F(EndedJobsTest, OutcomesAreThoseThatAreFound) {
  jobs_.add(last_of("good", 1), "", false, trace_of("good", 1, Code::ok));
  jobs_.add(last_of("bad", 1), "", false, trace_of("bad", 1, Code::failed_precondition));
  jobs_.add(last_of("crashed", 1), "was killed by signal 9", false, {});
  const v1::AgentReport seen = report();
  ASSERT_EQ(seen.ended_size(), 3);
  EXPECT_EQ(seen.ended(0).outcome(), "ok");
  EXPECT_EQ(seen.ended(1).outcome(), "failed");
  EXPECT_EQ(seen.ended(2).outcome(), "failed");
  EXPECT_THAT(seen.ended(2).sentence(), HasSubstr("was killed by signal 9"));
  EXPECT_EQ(seen.totals().jobs_ok(), 1U);
  EXPECT_EQ(seen.totals().jobs_failed(), 2U);
}

// What its name's last run called is still kept.
TEST_F(EndedJobsTest, AJobThatNeverBeganHasFailedThoughAnEarlierRunHasNot) {
  v1::WorkerReport last = last_of("job", 1);
  last.clear_departures();
  last.set_failures(0);
  last.set_ranks_died(0);
  jobs_.add(last, "", false, trace_of("job", 1, Code::ok));
  EXPECT_EQ(report().ended(0).outcome(), "failed");
  EXPECT_THAT(report().ended(0).sentence(), HasSubstr("before all of its 2 ranks had joined"));
}

TEST_F(EndedJobsTest, AJobThatAnAdministratorStopsHasNotFailed) {
  jobs_.add(last_of("job", 1), "", true, trace_of("job", 1, Code::unavailable));
  EXPECT_EQ(report().ended(0).outcome(), "stopped");
  EXPECT_EQ(report().totals().jobs_stopped(), 1U);
  EXPECT_EQ(report().totals().jobs_failed(), 0U);
}

// Counters of Prometheus may not fall, whatever a user's worker says.
TEST_F(EndedJobsTest, TotalsGrowWithReportsAndNeverFall) {
  v1::WorkerReport worker = last_of("job", 1);
  jobs_.count({}, worker);
  EXPECT_EQ(report().totals().operations_failed(), 3U);
  EXPECT_EQ(report().totals().ranks_died(), 1U);
  jobs_.add(worker, "", false, trace_of("job", 1, Code::ok));
  EXPECT_EQ(report().totals().operations_failed(), 3U);
  v1::WorkerReport fewer = worker;
  fewer.set_failures(0);
  jobs_.count(worker, fewer);
  EXPECT_EQ(report().totals().operations_failed(), 3U);
  fewer.set_failures(UINT64_MAX);
  for (int i = 0; i < 3; ++i) jobs_.count(worker, fewer);
  EXPECT_EQ(report().totals().operations_failed(), 3'000'003U);
}

// Neither does it matter what was kept of its ranks' calls.
TEST_F(EndedJobsTest, WithoutATraceCausesAndCountsTell) {
  v1::WorkerReport died = last_of("died", 1);
  v1::Departure& gone = *died.mutable_departures()->add_first();
  gone.set_rank(1);
  gone.mutable_cause()->set_code(14);
  gone.mutable_cause()->set_message("rank 1 (host a, pid 7) died");
  jobs_.add(died, "", false, {});
  jobs_.add(last_of("failed", 1), "", false, {});
  v1::WorkerReport good = last_of("good", 1);
  good.set_failures(0);
  jobs_.add(good, "", false, {});
  EXPECT_EQ(report().ended(0).sentence(), "rank 1 died without leaving the job");
  EXPECT_EQ(report().ended(0).outcome(), "failed");
  EXPECT_EQ(report().ended(1).sentence(), "3 operations of its ranks failed");
  EXPECT_EQ(report().ended(1).outcome(), "failed");
  EXPECT_EQ(report().ended(2).outcome(), "ok");
}

// The worker goes on, and its job may yet end well: it is not counted.
TEST_F(EndedJobsTest, AnEpochThatFailedIsKeptAndOneThatDidNotIsNot) {
  jobs_.add_epoch(last_of("job", 1), 2, trace_of("job", 1, Code::failed_precondition));
  jobs_.add_epoch(last_of("good", 1), 2, trace_of("good", 1, Code::ok));
  ASSERT_EQ(report().ended_size(), 1);
  EXPECT_EQ(report().ended(0).outcome(), "failed");
  EXPECT_THAT(report().ended(0).sentence(), StartsWith("epoch 1 failed: "));
  EXPECT_THAT(report().ended(0).sentence(), HasSubstr("; the job went on as epoch 2"));
  EXPECT_EQ(report().totals().jobs_failed(), 0U);
  EXPECT_EQ(report().totals().jobs_ok(), 0U);
}

// A rank died while an operation was under way.
TEST_F(EndedJobsTest, AnEpochIsNotSaidToBeTheEndOfTheJob) {
  v1::TraceReply trace = trace_of("job", 1, Code::ok);
  v1::TracedOperation& call = *trace.mutable_hosts(0)->mutable_ranks(0)->mutable_operations(0);
  call.set_ended(false);
  call.set_flags(kRequestBlocking);
  jobs_.add_epoch(last_of("job", 1), 2, trace);
  ASSERT_EQ(report().ended_size(), 1);
  EXPECT_THAT(report().ended(0).sentence(), StartsWith("epoch 1 failed: it ended in the midst of"));
}

TEST_F(EndedJobsTest, EpochsOfAJobDriveOutNoOtherEnds) {
  settings_.trace_jobs = 8;
  jobs_.add(last_of("other", 1), "", false, {});
  for (uint32_t epoch = 1; epoch <= 20; ++epoch) {
    v1::WorkerReport last = last_of("job", 1);
    last.mutable_departures()->set_epoch(epoch);
    jobs_.add_epoch(last, epoch + 1, {});
  }
  const v1::AgentReport seen = report();
  ASSERT_EQ(seen.ended_size(), 5);
  EXPECT_EQ(seen.ended(0).last().job(), "other");
  EXPECT_THAT(seen.ended(1).sentence(), HasSubstr("as epoch 18"));
  EXPECT_THAT(seen.ended(4).sentence(), HasSubstr("as epoch 21"));
}

TEST_F(EndedJobsTest, WhyAJoinFailedIsKept) {
  v1::WorkerReport last = last_of("job", 1);
  last.mutable_departures()->set_epoch(0);
  last.mutable_failed_join()->mutable_status()->set_message("the ranks disagree on the world size");
  jobs_.add(last, "", false, {});
  EXPECT_EQ(report().ended(0).sentence(),
            "the job has ended before all of its 2 ranks had joined: the ranks disagree on the "
            "world size");
}

TEST_F(EndedJobsTest, WhatIsKeptIsShort) {
  v1::WorkerReport last = last_of("job", 1);
  last.set_state(std::string(1 << 20, 'x'));
  last.mutable_failure()->mutable_status()->set_message(std::string(1 << 20, 'z'));
  last.mutable_failed_join()->mutable_status()->set_culprit_host(std::string(1 << 20, 'z'));
  for (uint32_t rank = 0; rank < 10'000; ++rank) {
    last.add_ranks()->set_rank(rank);
    last.mutable_departures()->add_ranks(rank);
    v1::Departure& gone = *last.mutable_departures()->add_first();
    gone.set_time_ms(INT64_MAX);
    gone.mutable_cause()->set_message(std::string(1'000, 'y'));
  }
  jobs_.add(last, "", false, {});
  EXPECT_LT(report().ended(0).ByteSizeLong(), 16'384U);
}

TEST_F(EndedJobsTest, WhoEndsManyJobsDrivesOutTheirOwn) {
  jobs_.add(last_of("mine", 1), "", false, {});
  for (const char* name : {"x", "y", "z"}) jobs_.add(last_of(name, 2), "", false, {});
  const v1::AgentReport seen = report();
  ASSERT_EQ(seen.ended_size(), 3);
  EXPECT_EQ(seen.ended(0).last().job(), "mine");
  EXPECT_EQ(seen.ended(1).last().job(), "y");
}

}  // namespace
}  // namespace tutti

// Which rank's failure `tutti run` reports.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "daemon/launch/first_failure.h"
#include "proto/mesh.pb.h"

namespace tutti {
namespace {

using Codes = std::vector<std::optional<int>>;
constexpr std::nullopt_t kRuns = std::nullopt;

std::optional<int> first(const Codes& codes, const std::vector<int>& failed,
                         const JobRecord& record, bool must_decide = false) {
  return first_failure(codes, failed, record, must_decide);
}

TEST(FirstFailure, OfRanksThatRanNoJobIsTheFirstToEnd) {
  EXPECT_EQ(first({kRuns, 3, 4}, {2, 1}, {}), 2);
}

TEST(FirstFailure, TheFirstToLeaveIsNamedHoweverLateItsProcessEnds) {
  const JobRecord record{.joined = true, .departed = {1, 2, 0}};
  EXPECT_EQ(first({1, 7, 1}, {2, 0, 1}, record), 1);
  EXPECT_EQ(first({1, kRuns, 1}, {2, 0}, record), std::nullopt) << "it may still fail";
  EXPECT_EQ(first({1, kRuns, 1}, {0, 2}, record, true), 2) << "it did not, in time";
}

TEST(FirstFailure, RanksThatLeftLaterAreNotWaitedFor) {
  EXPECT_EQ(first({kRuns, 7, kRuns}, {1}, {.joined = true, .departed = {1, 2, 0}}), 1);
}

TEST(FirstFailure, TheFirstToLeaveIsNotNamedIfItEndedWell) {
  EXPECT_EQ(first({5, 0, kRuns}, {0}, {.joined = true, .departed = {1, 0}}), 0);
}

TEST(FirstFailure, ItIsUndecidedWhileTheRecordIsBehind) {
  const JobRecord empty{.joined = true};
  EXPECT_EQ(first({kRuns, 7}, {1}, empty), std::nullopt)
      << "ranks that left before are not listed yet";
  EXPECT_EQ(first({kRuns, 7}, {1}, empty, true), 1);
}

TEST(FirstFailure, AfterAnAbortItsCulpritIsNamedWhereItFailed) {
  const JobRecord of_two{.joined = true, .is_aborted = true, .culprit = 2};
  EXPECT_EQ(first({1, kRuns, 9}, {0, 2}, of_two), 2);
  EXPECT_EQ(first({1, kRuns, kRuns}, {0}, of_two), 0) << "it hangs, and failed nowhere";
  const JobRecord of_nobody{.joined = true, .is_aborted = true};
  EXPECT_EQ(first({1, kRuns, 9}, {2, 0}, of_nobody), 2);
  const JobRecord after_one{.joined = true, .departed = {1}, .is_aborted = true, .culprit = 0};
  EXPECT_EQ(first({1, 4, kRuns}, {0, 1}, after_one), 1);
}

v1::StatusReply reply_of(uint32_t world_size, uint32_t epoch, const std::vector<uint32_t>& gone) {
  v1::StatusReply reply;
  v1::AgentReport& agent = *reply.add_agents();
  agent.set_state("serving");
  agent.add_workers()->set_job("other");
  v1::WorkerReport& worker = *agent.add_workers();
  worker.set_job("run");
  worker.set_state("running");
  worker.set_world_size(world_size);
  worker.mutable_departures()->set_epoch(epoch);
  worker.mutable_departures()->mutable_ranks()->Add(gone.begin(), gone.end());
  return reply;
}

TEST(JobRecord, IsWhatTheWorkerReports) {
  v1::StatusReply reply = reply_of(4, 2, {3, 9, 1});
  JobRecord record = record_of(reply, "run", 4);
  EXPECT_TRUE(record.joined);
  EXPECT_EQ(record.departed, (std::vector<int>{3, 1})) << "there is no rank 9";
  EXPECT_FALSE(record.is_aborted);
  reply.mutable_agents(0)->mutable_workers(1)->mutable_departures()->mutable_cause()->set_code(14);
  reply.mutable_agents(0)
      ->mutable_workers(1)
      ->mutable_departures()
      ->mutable_cause()
      ->set_culprit_rank(2);
  record = record_of(reply, "run", 4);
  EXPECT_TRUE(record.is_aborted);
  EXPECT_EQ(record.culprit, 2);
}

TEST(JobRecord, OfAJobThatDidNotRunIsEmpty) {
  EXPECT_FALSE(record_of(reply_of(4, 0, {}), "run", 4).joined) << "no epoch";
  EXPECT_FALSE(record_of(reply_of(2, 1, {0}), "run", 4).joined) << "another size";
  EXPECT_FALSE(record_of(reply_of(4, 1, {0}), "else", 4).joined) << "no such job";
}

TEST(JobRecord, OfAnAgentOrWorkerThatDoesNotAnswerMayStillCome) {
  v1::StatusReply reply;
  reply.add_agents()->set_state("busy");
  EXPECT_TRUE(record_of(reply, "run", 4).joined);
  reply = reply_of(0, 0, {});
  reply.mutable_agents(0)->mutable_workers(1)->set_state("starting");
  EXPECT_TRUE(record_of(reply, "run", 4).joined);
}

}  // namespace
}  // namespace tutti

// What `tutti top` shows.
#include "daemon/cli/top_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

v1::RankReport& add_rank(v1::WorkerReport& worker, uint32_t rank, uint64_t operations) {
  v1::RankReport& report = *worker.add_ranks();
  report.set_rank(rank);
  report.set_pid(100 + rank);
  report.set_epoch(1);
  report.set_operations(operations);
  report.set_bytes(operations << 20);
  return report;
}

v1::WorkerReport& add_worker(v1::AgentReport& agent, const std::string& job, uint64_t operations) {
  v1::WorkerReport& worker = *agent.add_workers();
  worker.set_job(job);
  worker.set_uid(1000);
  worker.set_state("running");
  worker.set_world_size(4);
  worker.set_epoch(1);
  worker.set_strategy("ring");
  worker.set_operations(2 * operations);
  worker.set_bytes(2 * operations << 20);
  worker.set_sent_bytes(operations << 10);
  return worker;
}

// Two hosts with two ranks each, which have run this many operations.
v1::StatusReply mesh_after(uint64_t operations) {
  v1::StatusReply reply;
  for (const uint32_t host : {0U, 1U}) {
    v1::AgentReport& agent = *reply.add_agents();
    agent.set_host(host == 0 ? "a" : "b");
    agent.set_address("10.0.0." + std::to_string(host + 1) + ":7601");
    agent.set_state("serving");
    agent.set_time_ms(1'000'000);
    agent.set_coordinator(host == 0);
    agent.set_version("0.1.0");
    v1::WorkerReport& worker = add_worker(agent, "demo", operations);
    for (const uint32_t rank : {0U, 1U}) add_rank(worker, 2 * host + rank, operations);
  }
  return reply;
}

// Each rank of each job has called and ended one operation just now.
v1::TraceReply just_called(const v1::StatusReply& status) {
  v1::TraceReply trace;
  for (const v1::AgentReport& agent : status.agents())
    for (const v1::WorkerReport& worker : agent.workers()) {
      v1::HostTrace& host = *trace.add_hosts();
      host.set_host(agent.host());
      host.set_job(worker.job());
      host.mutable_owner()->set_uid(worker.uid());
      host.set_epoch(worker.epoch());
      host.set_world_size(worker.world_size());
      for (const v1::RankReport& rank : worker.ranks()) {
        v1::RankTrace& traced = *host.add_ranks();
        traced.set_rank(rank.rank());
        traced.set_recorded(1);
        v1::TracedOperation& call = *traced.add_operations();
        call.set_begun_ns(static_cast<uint64_t>(agent.time_ms()) * 1'000'000 - 1'000);
        call.set_ended(true);
      }
    }
  return trace;
}

struct Shown {
  double seconds = 1;
  std::string job = {};
  size_t columns = 0;
  size_t lines = 0;
  std::string error = {};
  TopOrder order = TopOrder::name;
  bool colors = false;
};

std::string top_of(const v1::StatusReply& before, const v1::StatusReply& after,
                   const Shown& shown = {}) {
  const MeshDiagnosis diagnosis = diagnose_mesh(after, just_called(after));
  return top_text({.before = before,
                   .after = after,
                   .diagnosis = diagnosis,
                   .seconds = shown.seconds,
                   .job = shown.job,
                   .columns = shown.columns,
                   .lines = shown.lines,
                   .error = shown.error,
                   .order = shown.order,
                   .colors = shown.colors});
}

TEST(TopReport, RatesAreDifferencesOverTime) {
  const v1::StatusReply before = mesh_after(100);
  const v1::StatusReply after = mesh_after(140);
  EXPECT_EQ(top_of(before, after, {.seconds = 2}),
            "JOB   USER  STATE    RANKS   OPS/S  TENSORS   SENT      FAILED  STRATEGY\n"
            "demo  1000  running  4 of 4     20  80 MiB/s  40 KiB/s       0  ring\n"
            "\n"
            "JOB   RANK  HOST  PID  STATE   OPERATIONS  OPS/S  TENSORS\n"
            "demo     0  a     100  joined         140     20  20 MiB/s\n"
            "demo     1  a     101  joined         140     20  20 MiB/s\n"
            "demo     2  b     102  joined         140     20  20 MiB/s\n"
            "demo     3  b     103  joined         140     20  20 MiB/s\n"
            "\n"
            "HOST  STATE    JOBS  GPUS  VERSION  ADDRESS\n"
            "a*    serving     1     0    0.1.0  10.0.0.1:7601\n"
            "b     serving     1     0    0.1.0  10.0.0.2:7601\n");
}

TEST(TopReport, WhoJoinedAgainHasNoRateYet) {
  const v1::StatusReply before = mesh_after(100);
  v1::StatusReply after = mesh_after(140);
  v1::WorkerReport& worker = *after.mutable_agents(0)->mutable_workers(0);
  worker.mutable_ranks(0)->set_pid(999);
  worker.mutable_ranks(1)->set_epoch(0);
  const std::string text = top_of(before, after);
  EXPECT_THAT(text, HasSubstr("demo  1000  not_joined  3 of 4"));
  EXPECT_THAT(text, HasSubstr("\ndemo: ranks 0, 2, 3 of 4 have not joined; "));
  EXPECT_THAT(text, HasSubstr("demo     0  a     999  joined          140      0"));
  EXPECT_THAT(text, HasSubstr("demo     1  a     101  joining "));
}

TEST(TopReport, CountersThatBeganAgainAreNoNegativeRate) {
  const v1::StatusReply before = mesh_after(100);
  const v1::StatusReply after = mesh_after(1);
  EXPECT_THAT(top_of(before, after), HasSubstr("running  4 of 4      0"));
}

TEST(TopReport, AFailedHostIsTheJobsStateAndWhyItFailedIsBelow) {
  const v1::StatusReply before = mesh_after(1);
  v1::StatusReply after = mesh_after(1);
  after.mutable_agents(1)->mutable_workers(0)->set_state("failed: rank 3 died");
  after.mutable_agents(1)->mutable_workers(0)->set_failures(7);
  EXPECT_THAT(top_of(before, after),
              AllOf(HasSubstr("demo  1000  failed  4 of 4"),
                    HasSubstr("\n\ndemo: epoch 1 failed: rank 3 died\n\nJOB   RANK")));
}

TEST(TopReport, OneJobsRanksAlone) {
  const v1::StatusReply before = mesh_after(1);
  v1::StatusReply after = mesh_after(1);
  add_rank(add_worker(*after.mutable_agents(0), "other", 3), 0, 3);
  const std::string text = top_of(before, after, {.job = "other"});
  EXPECT_THAT(text, HasSubstr("other     0  a"));
  EXPECT_THAT(text, Not(HasSubstr("demo      0  a")));
}

TEST(TopReport, ATerminalCutsLinesAndTheRest) {
  const v1::StatusReply reply = mesh_after(1);
  EXPECT_EQ(top_of(reply, reply, {.columns = 10, .lines = 4}),
            "JOB   USER\n"
            "demo  1000\n"
            "\n"
            "q quits, ");
}

TEST(TopReport, TheLastLineOfATerminalExplainsTheKeysAndNamesTheOrder) {
  const v1::StatusReply reply = mesh_after(1);
  const auto last_line = [&](TopOrder order) {
    const std::string text = top_of(reply, reply, {.lines = 50, .order = order});
    return text.substr(text.rfind('\n') + 1);
  };
  EXPECT_EQ(last_line(TopOrder::name), "q quits, s sorts otherwise than by name");
  EXPECT_EQ(last_line(TopOrder::failures), "q quits, s sorts otherwise than by failures");
}

TEST(TopReport, OrdersFollowEachOther) {
  EXPECT_EQ(after(TopOrder::name), TopOrder::operations);
  EXPECT_EQ(after(TopOrder::operations), TopOrder::tensors);
  EXPECT_EQ(after(TopOrder::tensors), TopOrder::failures);
  EXPECT_EQ(after(TopOrder::failures), TopOrder::name);
}

// Names ascend; of the rest the most comes first.
TEST(TopReport, JobsAndRanksAreSorted) {
  v1::StatusReply before = mesh_after(0);
  v1::StatusReply now = mesh_after(1);
  add_rank(add_worker(*before.mutable_agents(0), "fast", 0), 0, 0);
  v1::WorkerReport& fast = add_worker(*now.mutable_agents(0), "fast", 100);
  add_rank(fast, 0, 100);
  now.mutable_agents(0)->mutable_workers(0)->set_failures(9);
  const auto names = [&](TopOrder order) {
    const std::string text = top_of(before, now, {.order = order});
    return text.substr(text.find('\n') + 1, 4);
  };
  EXPECT_EQ(names(TopOrder::name), "demo");
  EXPECT_EQ(names(TopOrder::operations), "fast");
  EXPECT_EQ(names(TopOrder::tensors), "fast");
  EXPECT_EQ(names(TopOrder::failures), "demo");
  EXPECT_THAT(top_of(before, now, {.order = TopOrder::operations}),
              HasSubstr("TENSORS\nfast     0  a"));
}

TEST(TopReport, ColorsMarkHeadersAndWhatIsWrong) {
  v1::StatusReply reply = mesh_after(1);
  reply.mutable_agents(1)->mutable_workers(0)->set_state("failed: rank 3 died");
  reply.mutable_agents(1)->set_state("draining");
  const std::string text = top_of(reply, reply, {.error = "late", .colors = true});
  EXPECT_THAT(text, StartsWith("\x1b[31mlate\x1b[m\n"));
  EXPECT_THAT(text, HasSubstr("\n\x1b[1mJOB   USER"));
  EXPECT_THAT(text, HasSubstr("\n\x1b[33mdemo  1000  failed"));
  EXPECT_THAT(text, HasSubstr("\n\x1b[33mdemo: epoch 1 failed: rank 3 died\x1b[m\n"));
  EXPECT_THAT(text, HasSubstr("\na*    serving"));
  EXPECT_THAT(text, HasSubstr("\n\x1b[33mb     draining"));
  EXPECT_THAT(top_of(reply, reply, {.error = "late"}), Not(HasSubstr("\x1b")));
}

TEST(TopReport, JobsOfOneNameOfDifferentUsersHaveALineEach) {
  v1::StatusReply reply = mesh_after(100);
  v1::WorkerReport& other = add_worker(*reply.mutable_agents(0), "demo", 3);
  other.set_uid(1001);
  add_rank(other, 0, 3).set_pid(100);
  const std::string text = top_of(reply, reply);
  EXPECT_THAT(text, HasSubstr("demo  1000  running  4 of 4"));
  EXPECT_THAT(text, HasSubstr("demo  1001  running  1 of 4"));
  EXPECT_THAT(text, HasSubstr("demo     0  a     100  joined         100"));
  EXPECT_THAT(text, HasSubstr("demo     0  a     100  joined           3"));
}

TEST(TopReport, WhyItIsNotUpdatedIsTheTopLine) {
  const v1::StatusReply reply = mesh_after(1);
  const std::string text =
      top_of(reply, reply, {.columns = 40, .error = "not updated for 3 s: no\nway"});
  EXPECT_THAT(text, StartsWith("not updated for 3 s: no?way\n\nJOB   USER"));
}

TEST(TopReport, AMeshWithoutJobs) {
  v1::StatusReply reply = mesh_after(1);
  for (v1::AgentReport& agent : *reply.mutable_agents()) agent.clear_workers();
  EXPECT_THAT(top_of(reply, reply), HasSubstr("no jobs\n\nHOST  STATE"));
}

}  // namespace
}  // namespace tutti

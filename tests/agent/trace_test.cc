// Flight recorders that workers send to their agent: kept for ended jobs, for their own users, and
// nothing else is.
#include <gmock/gmock.h>
#include <grp.h>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/agent/harness.h"

namespace tutti {
namespace {

struct AgentTrace : AgentTest {
  // The jobs whose recorders the agent shows for this name.
  std::vector<v1::HostTrace> traces(const std::string& job) const {
    const auto reply = admin_trace(address(), job, 0, kPatienceMs);
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    if (!reply.ok()) return {};
    return {reply->hosts().begin(), reply->hosts().end()};
  }
  size_t traces_seen_by(uint32_t user, const std::string& job) const {
    EXPECT_EQ(seteuid(user), 0);
    const size_t count = traces(job).size();
    EXPECT_EQ(seteuid(0), 0);
    return count;
  }
  v1::Welcome join_as(uint32_t user, const std::string& job) {
    EXPECT_EQ(setegid(user), 0);
    EXPECT_EQ(seteuid(user), 0);
    const v1::Welcome welcome = join(job);
    EXPECT_EQ(seteuid(0), 0);
    EXPECT_EQ(setegid(0), 0);
    return welcome;
  }
  void end_job(const v1::Welcome& welcome) {
    const size_t before = count_in_log("killed by signal 9");
    kill(std::stoi(field(welcome, "pid")), SIGKILL);
    EXPECT_TRUE(await([&] { return count_in_log("killed by signal 9") > before; })) << log();
  }
};

TEST_F(AgentTrace, IsOfTheWorkersJobAndKeptWhenItEnds) {
  start();
  const v1::Welcome welcome = join("record");
  ASSERT_TRUE(await([&] { return traces("record").size() == 1; }));
  v1::HostTrace trace = traces("record").at(0);
  EXPECT_EQ(trace.host(), "a");
  EXPECT_EQ(trace.job(), "record");
  EXPECT_EQ(trace.epoch(), 5u);
  EXPECT_EQ(trace.owner().uid(), geteuid());
  EXPECT_FALSE(trace.ended());
  ASSERT_EQ(trace.ranks_size(), 1);
  ASSERT_EQ(trace.ranks(0).operations_size(), 1);
  EXPECT_EQ(trace.ranks(0).operations(0).count(), 123u);
  EXPECT_TRUE(traces("other").empty());
  end_job(welcome);
  ASSERT_TRUE(await([&] { return traces("record").at(0).ended(); }));
  EXPECT_EQ(traces("record").at(0).ranks(0).operations(0).count(), 123u);
}

TEST_F(AgentTrace, TheNextAgentGetsThoseOfRunningJobs) {
  const pid_t first = start();
  join("record");
  ASSERT_TRUE(await([&] { return traces("record").size() == 1; }));
  end(first, SIGKILL);
  start();
  EXPECT_TRUE(await([&] { return traces("record").size() == 1; }));
}

TEST_F(AgentTrace, WhatIsNoRecorderIsDropped) {
  start({"--log-level=debug"});
  for (const std::string job : {"record-pipe", "record-program", "record-garbage", "record"})
    join(job);
  for (const std::string job : {"record-pipe", "record-program"}) {
    const std::string line = "job \"" + job + "\": this is no memory of a flight recorder";
    EXPECT_TRUE(await([&] { return count_in_log(line) > 0; })) << log();
  }
  ASSERT_TRUE(await([&] { return traces("record").size() == 1; }));
  for (const std::string job : {"record-pipe", "record-program", "record-garbage"})
    EXPECT_TRUE(traces(job).empty()) << job;
}

TEST_F(AgentTrace, UsersSeeThoseOfTheirOwnJobsAloneAsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be several users";
  start();
  const v1::Welcome theirs = join_as(kNobody, "record");
  join("record");
  ASSERT_TRUE(await([&] { return traces("record").size() == 2; }));
  for (const bool ended : {false, true}) {
    if (ended) end_job(theirs);
    EXPECT_EQ(traces_seen_by(kNobody, "record"), 1u);
    EXPECT_EQ(traces_seen_by(kDaemon, "record"), 0u);
    EXPECT_EQ(traces_seen_by(kDaemon, ""), 0u);
    EXPECT_EQ(traces_seen_by(0, ""), 2u);
  }
}

TEST_F(AgentTrace, AFewEndedJobsAreKeptForAWhileAsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be several users";
  start({"--trace-jobs=2"});
  const v1::Welcome theirs = join_as(kNobody, "record-theirs");
  ASSERT_TRUE(await([&] { return traces("record-theirs").size() == 1; }));
  end_job(theirs);
  for (int i = 0; i < 3; ++i) {
    const std::string job = "record-" + std::to_string(i);
    const v1::Welcome ours = join(job);
    ASSERT_TRUE(await([&] { return traces(job).size() == 1; }));
    end_job(ours);
  }
  ASSERT_TRUE(await([&] { return traces("").size() == 2; }));
  EXPECT_EQ(traces("record-2").size(), 1u) << "the newest of who has the most";
  EXPECT_EQ(traces("record-theirs").size(), 1u) << "of who has the fewest";
}

TEST_F(AgentTrace, EndedJobsAreKeptNoLongerThanIsSet) {
  start({"--trace-keep-ms=0"});
  const v1::Welcome welcome = join("record");
  ASSERT_TRUE(await([&] { return traces("record").size() == 1; }));
  end_job(welcome);
  EXPECT_TRUE(await([&] { return traces("record").empty(); }));
}

}  // namespace
}  // namespace tutti

// tuttid and its workers: starting, adopting and stopping them, and their unexpected end.
#include <gmock/gmock.h>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/agent/harness.h"
#include "tests/support/descriptors.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct AgentWorkers : AgentTest {
  std::string the_socket_file() const {
    for (const auto& file : std::filesystem::directory_iterator(home + "/run/workers"))
      return file.path();
    return "none";
  }
  // Joins as this user or another.
  v1::Welcome join_as(uint32_t user, const std::string& job) {
    EXPECT_EQ(setegid(user), 0);
    EXPECT_EQ(seteuid(user), 0);
    trainers.emplace_back(socket());
    EXPECT_EQ(seteuid(0), 0);
    EXPECT_EQ(setegid(0), 0);
    trainers.back().greet(hello_of(job));
    const v1::Welcome welcome = trainers.back().welcome().value_or(v1::Welcome());
    if (field(welcome, "pid") != "") workers.insert(std::stoi(field(welcome, "pid")));
    return welcome;
  }
};

TEST_F(AgentWorkers, StartAsTheContractSays) {
  start({"--slice-bytes=8192"});
  const v1::Welcome welcome = join("demo");
  EXPECT_EQ(field(welcome, "coordinator"), control());
  EXPECT_EQ(field(welcome, "host"), "a");
  EXPECT_EQ(field(welcome, "data"), "127.0.0.1");
  EXPECT_EQ(field(welcome, "slice"), "8192");
  EXPECT_EQ(field(welcome, "owner"), std::to_string(geteuid()));
  EXPECT_EQ(field(welcome, "notify"), "-");
  EXPECT_EQ(field(welcome, "leads"), "1");
  EXPECT_EQ(field(welcome, "inherited"), "0");
  EXPECT_EQ(field(welcome, "no_new_privileges"), "1");
}

TEST_F(AgentWorkers, RanksOfAJobShareOneAndJobsDoNot) {
  start();
  const std::string red = field(join("red"), "pid");
  EXPECT_EQ(field(join("red", 1), "pid"), red);
  EXPECT_NE(field(join("blue"), "pid"), red);
  EXPECT_TRUE(await([&] { return count_in_log("started for user") == 2; })) << log();
}

TEST_F(AgentWorkers, DeathIsLoggedOnceAndTheNextJoinStartsAnother) {
  start();
  const v1::Welcome first = join("demo");
  const pid_t worker = std::stoi(field(first, "pid"));
  const std::string other = field(join("other"), "pid");
  kill(worker, SIGKILL);
  EXPECT_TRUE(trainers[0].ended());
  const std::string words = "(pid " + std::to_string(worker) + ") was killed by signal 9";
  EXPECT_TRUE(await([&] { return count_in_log(words) == 1; })) << log();
  const v1::Welcome again = join("demo");
  EXPECT_EQ(again.code(), TUTTI_OK);
  EXPECT_NE(field(again, "pid"), field(first, "pid"));
  EXPECT_EQ(field(join("other", 1), "pid"), other);
  EXPECT_EQ(count_in_log(words), 1u);
}

TEST_F(AgentWorkers, DeathDuringAdoptionEndsTheTrainersConnection) {
  start();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(join("die").message(), "gone");
  EXPECT_TRUE(await([&] {
    return count_in_log("ended with exit code 3") == count_in_log("started for user");
  })) << log();
  EXPECT_EQ(join("demo").code(), TUTTI_OK);
}

TEST_F(AgentWorkers, NextAgentAdoptsTheLiveAndRemovesTheDead) {
  const pid_t agent = start();
  const v1::Welcome red = join("red");
  const v1::Welcome blue = join("blue");
  end(agent, SIGKILL);
  kill(std::stoi(field(blue, "pid")), SIGKILL);
  EXPECT_TRUE(trainers[1].ended());
  start();
  EXPECT_THAT(log(), HasSubstr("took over job \"red\": worker pid " + field(red, "pid")));
  EXPECT_EQ(count_in_log("which a dead worker left"), 1u);
  EXPECT_EQ(field(join("red", 1), "pid"), field(red, "pid"));
  EXPECT_NE(field(join("blue", 1), "pid"), field(blue, "pid"));
  kill(std::stoi(field(red, "pid")), SIGKILL);
  EXPECT_TRUE(await([&] { return count_in_log("(pid " + field(red, "pid") + ") is gone") == 1; }));
}

TEST_F(AgentWorkers, OneThatDoesNotAnswerTheNextAgentIsNotDoubled) {
  const pid_t agent = start();
  join("mute");
  end(agent, SIGTERM);
  EXPECT_EQ(next_notification(), "STOPPING=1");
  start();
  const v1::Welcome refused = join("mute", 1);
  EXPECT_EQ(refused.code(), TUTTI_UNAVAILABLE);
  EXPECT_THAT(refused.message(), HasSubstr("does not answer"));
  EXPECT_EQ(join("demo").code(), TUTTI_OK);
}

TEST_F(AgentWorkers, SlowOneDoesNotHoldUpStatus) {
  start();
  const std::string pid = field(join("mute"), "pid");
  for (int i = 0; i < 2; ++i) {
    const auto reply = admin_status(address(), true, kPatienceMs);
    ASSERT_TRUE(reply.ok());
    ASSERT_EQ(reply->agents(0).workers_size(), 1);
    EXPECT_EQ(reply->agents(0).workers(0).job(), "mute");
    EXPECT_EQ(std::to_string(reply->agents(0).workers(0).pid()), pid);
  }
}

// At most one each second: it may claim epochs without end.
TEST_F(AgentWorkers, OneThatGoesOnLeavesARecordOfAnEpochThatFailed) {
  start();
  const TimePoint began = Clock::now();
  for (const uint32_t rank : {0U, 1U, 2U}) join("again", rank);
  const auto reply = admin_history(address(), kPatienceMs);
  ASSERT_TRUE(reply.ok());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(Clock::now() - began).count();
  const v1::AgentReport& report = reply->agents(0);
  ASSERT_GE(report.ended_size(), 1);
  EXPECT_LE(report.ended_size(), 1 + seconds);
  EXPECT_EQ(report.ended(0).outcome(), "failed");
  EXPECT_EQ(report.ended(0).sentence(), "epoch 1 failed: rank 3 died; the job went on as epoch 2");
  EXPECT_EQ(report.totals().jobs_failed(), 0U);
}

TEST_F(AgentWorkers, GoOnWhenTheAgentStopsUnlessItStopsThemToo) {
  for (const bool jobs : {false, true}) {
    const pid_t agent = start();
    const v1::Welcome welcome = join("demo");
    ASSERT_TRUE(admin_stop(address(), jobs, kPatienceMs).ok());
    EXPECT_EQ(exit_code(agent), 0);
    EXPECT_EQ(next_notification(), "STOPPING=1");
    if (jobs)
      EXPECT_TRUE(trainers.back().ended());
    else
      EXPECT_EQ(kill(std::stoi(field(welcome, "pid")), 0), 0);
  }
}

TEST_F(AgentWorkers, MissingProgramIsNamed) {
  const pid_t agent = run({"--worker-binary=/no/such/worker"});
  EXPECT_EQ(exit_code(agent), 1);
  EXPECT_THAT(log(), HasSubstr("there is no worker binary /no/such/worker: No such file or "
                               "directory; install tutti-worker there, or name it with the "
                               "setting worker_binary"));
  EXPECT_THAT(next_notification(), StartsWith("STATUS=cannot start: "));
  EXPECT_EQ(exit_code(run({"--worker-binary=" + home})), 1) << "a directory";
  EXPECT_THAT(next_notification(), StartsWith("STATUS=cannot start: "));
  const std::string binary = home + "/worker";
  std::filesystem::create_symlink(TUTTI_FAKE_WORKER, binary);
  start({"--worker-binary=" + binary});
  std::filesystem::remove(binary);
  const v1::Welcome refused = join("demo");
  EXPECT_EQ(refused.code(), TUTTI_NOT_FOUND);
  EXPECT_THAT(refused.message(), HasSubstr("cannot run " + binary));
  EXPECT_EQ(the_socket_file(), "none");
}

TEST_F(AgentWorkers, BelongToTheUserWhoStartedTheJobAsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be two users";
  const pid_t agent = start();
  const v1::Welcome mine = join_as(kNobody, "theirs");
  EXPECT_EQ(field(mine, "uid"), std::to_string(kNobody));
  EXPECT_EQ(field(mine, "gid"), std::to_string(kNobody));
  EXPECT_EQ(field(join_as(kNobody, "theirs"), "pid"), field(mine, "pid"));
  EXPECT_NE(field(join_as(1, "theirs"), "pid"), field(mine, "pid"));
  EXPECT_NE(field(join("theirs", 1), "pid"), field(mine, "pid"));
  end(agent, SIGKILL);
  start();
  EXPECT_EQ(field(join_as(kNobody, "theirs"), "pid"), field(mine, "pid"));
}

// The job's user can read the environment of its worker.
TEST_F(AgentWorkers, OtherUsersGetListedVariablesOnly) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be two users";
  environment = {{"CLOUD_SECRET", "hunter2"}, {"LC_TIME", "C.UTF-8"}};
  start();
  const v1::Welcome theirs = join_as(kNobody, "theirs");
  EXPECT_EQ(field(theirs, "secret"), "-");
  EXPECT_EQ(field(theirs, "locale"), "C.UTF-8");
  EXPECT_EQ(field(join("own"), "secret"), "hunter2");
}

TEST_F(AgentWorkers, AreGivenTheVariablesThatTheSettingNames) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be two users";
  environment = {{"CLOUD_SECRET", "hunter2"}, {"LC_TIME", "C.UTF-8"}};
  start({"--worker-environment=PATH CLOUD_*"});
  const v1::Welcome theirs = join_as(kNobody, "theirs");
  EXPECT_EQ(field(theirs, "secret"), "hunter2");
  EXPECT_EQ(field(theirs, "locale"), "-");
}

TEST_F(AgentWorkers, DoNotGetTheToken) {
  environment = {{"TUTTI_TOKEN", "sesame"}};
  start();
  v1::Hello hello = hello_of("demo");
  hello.set_token("sesame");
  EXPECT_EQ(field(join(hello), "token"), "-");
}

TEST_F(AgentWorkers, AreNotProtectedFromLackOfMemoryAsTheAgentIs) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to change the protection";
  const pid_t agent = start();
  std::ofstream("/proc/" + std::to_string(agent) + "/oom_score_adj") << 300;
  EXPECT_EQ(field(join("demo"), "oom"), "0");
}

TEST_F(AgentWorkers, ManyJoinsLeakNoDescriptors) {
  const pid_t agent = start();
  join("demo");
  const int before = open_descriptors(agent);
  for (int i = 0; i < 100; ++i) {
    join("demo", 1);
    join("demo", 9);
    trainers.clear();
  }
  EXPECT_TRUE(await([&] { return open_descriptors(agent) <= before; })) << open_descriptors(agent);
}

}  // namespace
}  // namespace tutti

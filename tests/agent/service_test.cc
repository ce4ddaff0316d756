// tuttid as a service: what its manager gets, reading settings again, the watchdog, and
// draining.
#include <gmock/gmock.h>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/agent/harness.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct AgentService : AgentTest {
  AgentService() { write_settings(""); }

  void write_settings(const std::string& lines) const { std::ofstream(settings()) << lines; }
  std::string settings() const { return home + "/tuttid.conf"; }
  pid_t start_with_settings() { return start({"--config=" + settings()}); }
  // Returns what the manager gets when it is over.
  std::string reload(pid_t agent) {
    kill(agent, SIGHUP);
    EXPECT_THAT(next_notification(), StartsWith("RELOADING=1\nMONOTONIC_USEC="));
    return next_notification();
  }
  void expect_in_log(const std::string& words) {
    EXPECT_TRUE(await([&] { return count_in_log(words) > 0; })) << words << "\n" << log();
  }
};

TEST_F(AgentService, ReadsItsSettingsAgain) {
  const pid_t agent = start_with_settings();
  EXPECT_EQ(join("first").code(), TUTTI_OK);
  write_settings("jobs_max = 1\nslice_bytes = 65536\nadmin_group = staff\n");
  EXPECT_THAT(reload(agent), StartsWith("READY=1\nSTATUS=serves: "));
  expect_in_log("info tuttid[" + std::to_string(agent) + "] jobs_max: \"1\" from now on");
  expect_in_log("warning tuttid[" + std::to_string(agent) + "] admin_group: empty until a restart");
  const v1::Welcome refused = join("second");
  EXPECT_EQ(refused.code(), TUTTI_RESOURCE_EXHAUSTED) << refused.message();
  write_settings("slice_bytes = 65536\n");
  reload(agent);
  EXPECT_EQ(field(join("third"), "slice"), "65536");
}

TEST_F(AgentService, KeepsItsSettingsWhereTheFileIsWrong) {
  const pid_t agent = start_with_settings();
  write_settings("jobs_max = 1\nlisten\n");
  const std::string sentence = settings() + ":2: expected: name = value";
  EXPECT_EQ(reload(agent), "READY=1\nSTATUS=settings not read: " + sentence);
  expect_in_log("all settings stay as they are: " + sentence);
  EXPECT_EQ(join("first").code(), TUTTI_OK);
  EXPECT_EQ(join("second").code(), TUTTI_OK);
}

// The variable is gone from its environment then.
TEST_F(AgentService, KeepsItsTokenAndSaysThatTheFilesHaveChanged) {
  environment = {{"TUTTI_TOKEN", "sesame"}};
  pid_t agent = start_with_settings();
  reload(agent);
  expect_in_log("settings read again: 0 changed, 0 wait for a restart");
  end(agent, SIGKILL);
  environment = {};
  agent = start({"--token-file=" + write_tokens("sesame role=trainer\n")});
  write_tokens("sesame role=trainer jobs=first\n");
  reload(agent);
  expect_in_log("token_file: the tokens of before until a restart");
  EXPECT_THAT(log(), Not(HasSubstr("sesame")));
}

TEST_F(AgentService, FeedsTheWatchdogAndItsWorkersDoNotKnowOfIt) {
  environment = {{"WATCHDOG_USEC", "100000"}};
  start();
  EXPECT_EQ(next_notification(), "WATCHDOG=1");
  EXPECT_EQ(next_notification(), "WATCHDOG=1");
  const std::string worker = field(join("first"), "pid");
  EXPECT_THAT(text_of("/proc/" + worker + "/environ"), Not(HasSubstr("WATCHDOG")));
}

TEST_F(AgentService, LeavesTheWatchdogOfAnotherProcessAlone) {
  environment = {{"WATCHDOG_USEC", "1000"}, {"WATCHDOG_PID", "1"}};
  const pid_t agent = start();
  end(agent, SIGTERM);
  EXPECT_EQ(next_notification(), "STOPPING=1");
}

TEST_F(AgentService, TellsItsManagerWhyItDoesNotStart) {
  write_settings("\nlog_level = loud\n");
  EXPECT_EQ(exit_code(run({"--config=" + settings()})), 2);
  EXPECT_EQ(next_notification(), "STATUS=" + settings() +
                                     ":2: setting log_level = 'loud': expected one of: trace debug "
                                     "info warn error off");
  EXPECT_EQ(exit_code(run({"--listen=203.0.113.1:7601"})), 1);
  EXPECT_THAT(next_notification(), StartsWith("STATUS=cannot start: "));
}

TEST_F(AgentService, DoesNotListenEverywhereWithoutCredentials) {
  for (const char* everywhere : {"--listen=0.0.0.0:0", "--listen=[::]:0"}) {
    EXPECT_EQ(exit_code(run({everywhere})), 1);
    EXPECT_THAT(next_notification(), HasSubstr("is open to every network"));
  }
  start({"--listen=0.0.0.0:0", "--token-file=" + write_tokens("sesame role=agent\n")});
}

// ---- drain_ms ----

constexpr const char* kLong = "--drain-ms=3600000";

TEST_F(AgentService, EndsAtOnceWhereThereIsNoJobToWaitFor) {
  const pid_t agent = start({kLong});
  kill(agent, SIGTERM);
  EXPECT_EQ(exit_code(agent), 0);
}

TEST_F(AgentService, WaitsForTheEndOfItsJobsAndRefusesOthers) {
  const pid_t agent = start({kLong});
  const int worker = std::stoi(field(join("first"), "pid"));
  kill(agent, SIGTERM);
  EXPECT_THAT(next_notification(), HasSubstr("STOPPING=1\nSTATUS=stopping when the jobs"));
  const v1::Welcome refused = join("second");
  EXPECT_EQ(refused.code(), TUTTI_UNAVAILABLE);
  EXPECT_EQ(refused.message(), "host a is stopping");
  EXPECT_EQ(waitpid(agent, nullptr, WNOHANG), 0);
  kill(worker, SIGKILL);
  EXPECT_EQ(exit_code(agent), 0);
}

TEST_F(AgentService, IsNotRevivedByTheEndOfADrainWhileItStops) {
  const pid_t agent = start({kLong});
  const int worker = std::stoi(field(join("first"), "pid"));
  kill(agent, SIGTERM);
  EXPECT_THAT(next_notification(), HasSubstr("STOPPING=1"));
  const Status undone = admin_drain(address(), true, kPatienceMs);
  EXPECT_EQ(undone.code(), Code::failed_precondition);
  EXPECT_EQ(undone.message(), "host a is stopping");
  EXPECT_TRUE(admin_drain(address(), false, kPatienceMs).ok()) << "it takes no joins anyway";
  EXPECT_EQ(join("second").message(), "host a is stopping");
  EXPECT_EQ(admin_status(address(), true, kPatienceMs)->agents(0).state(), "draining");
  kill(worker, SIGKILL);
  EXPECT_EQ(exit_code(agent), 0);
}

TEST_F(AgentService, EndsTheJobsAfterDrainMs) {
  const pid_t agent = start({"--drain-ms=200"});
  const int worker = std::stoi(field(join("first"), "pid"));
  kill(agent, SIGTERM);
  EXPECT_EQ(exit_code(agent), 0);
  EXPECT_TRUE(await([&] { return kill(worker, 0) != 0; })) << "the worker lives on";
}

TEST_F(AgentService, EndsAtOnceOnASecondSignalAndItsJobsGoOn) {
  const pid_t agent = start({kLong});
  const int worker = std::stoi(field(join("first"), "pid"));
  kill(agent, SIGTERM);
  EXPECT_THAT(next_notification(), HasSubstr("STOPPING=1"));
  kill(agent, SIGTERM);
  EXPECT_EQ(exit_code(agent), 0);
  EXPECT_EQ(kill(worker, 0), 0);
}

}  // namespace
}  // namespace tutti

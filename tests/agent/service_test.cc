// tuttid as a service: what its manager gets, reading settings again, the watchdog, and
// draining.
#include <gmock/gmock.h>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/agent/harness.h"
#include "tests/support/test_ca.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct AgentService : AgentTest {
  AgentService() { write_settings(""); }

  void write_settings(const std::string& lines) const { std::ofstream(settings()) << lines; }
  std::string settings() const { return home + "/tuttid.conf"; }
  // The exit code of --check-config with these lines in the file, and what it printed.
  std::string check(const std::string& lines, const std::vector<std::string>& flags = {}) {
    std::vector<std::string> all = {"--config=" + settings(), "--check-config"};
    all.insert(all.end(), flags.begin(), flags.end());
    write_settings(lines);
    std::filesystem::remove(home + "/log");
    const int code = exit_code(run(all));
    return std::to_string(code) + " " + log();
  }
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

TEST_F(AgentService, ChecksItsConfigurationAndStartsNothing) {
  EXPECT_EQ(check("\njoin_timeout_ms = 2m\n"), "0 OK: " + settings() + "\n");
  environment = {{"TUTTI_SILENCE_MS", "soon"}};
  std::istringstream lines(
      check("\nlog_level = loud\nlisten = \"127.0.0.1:0\nscoket = /s\nlisten = a:1\nlisten = a:1\n",
            {"--jobs-max=0", "--token-file=/nowhere"}));
  for (const std::string& begin :
       {"2 " + settings() + ":2: setting log_level = 'loud': expected one of",
        settings() + ":3: setting listen: the quotes are not balanced",
        settings() + ":4: there is no setting 'scoket'; did you mean 'socket'?",
        settings() + ":6: setting listen is given twice, first in line 5",
        std::string("environment TUTTI_SILENCE_MS: setting silence_ms = 'soon'"),
        std::string("setting jobs_max = '0': expected a number from 1"),
        std::string("the secret file /nowhere cannot be read")}) {
    std::string line;
    std::getline(lines, line);
    EXPECT_THAT(line, StartsWith(begin));
  }
  EXPECT_FALSE(std::filesystem::exists(home + "/run")) << "it made something";
}

// What a start would find out later, with the place that is to be changed.
TEST_F(AgentService, ChecksWhatSettingsTogetherForbid) {
  const std::string file = "2 " + settings();
  EXPECT_THAT(check("", {"--listen=0.0.0.0:0"}),
              StartsWith("2 flag --listen: listen = 0.0.0.0:0 is open to every network"));
  EXPECT_THAT(check("\ncoordinator = here\n"),
              StartsWith(file + ":2: setting coordinator = 'here': expected host:port"));
  EXPECT_THAT(check("trust_network = yes\netcd = 127.0.0.1:1\ncoordinator = 127.0.0.1:2\n"),
              StartsWith(file + ":2: etcd = 127.0.0.1:1 and coordinator = 127.0.0.1:2 contradict"));
  EXPECT_THAT(check("metrics_listen = 0.0.0.0:0\n"),
              StartsWith(file + ":1: setting metrics_listen = '0.0.0.0:0' is open to every"));
  EXPECT_THAT(check("admin_group = no-such-group\n"),
              StartsWith(file + ":1: admin_group = 'no-such-group': there is no such group"));
  EXPECT_THAT(check("", {"--worker-binary=/nowhere"}),
              StartsWith("2 flag --worker-binary: there is no worker binary /nowhere: No such"));
  const std::string no_files = check("tls_dir = /nowhere\ntls = require\n");
  EXPECT_THAT(no_files, StartsWith(file + ":"));
  EXPECT_THAT(no_files, HasSubstr(".crt cannot be read: No such file or directory; put"));
  EXPECT_THAT(check("", {"--socket="}), StartsWith("2 flag --socket: setting socket = ''"));
  EXPECT_THAT(check("", {"--run-dir="}), StartsWith("2 flag --run-dir: setting run_dir = ''"));
  EXPECT_THAT(check("", {"--run-dir=/tmp/" + std::string(100, 'y')}),
              HasSubstr("cdef.sock' must have 1 to 107 bytes"));
  EXPECT_EQ(check("\xEF\xBB\xBFhost = b\n"), "0 OK: " + settings() + "\n");
  EXPECT_FALSE(std::filesystem::exists(home + "/run")) << "it made something";
}

// What would refuse this agent, or the start, only later.
TEST_F(AgentService, ChecksFilesAndPortsAgainstEachOther) {
  const std::string file = "2 " + settings();
  const TestCa authority("authority");
  mount_secret(home + "/tls", authority.issue({"", "DNS:b"}), authority.certificate());
  const std::string tls = "tls = require\ntls_dir = " + home + "/tls\n";
  EXPECT_THAT(check(tls, {"--host=c"}),
              AllOf(StartsWith(file + ":2: the certificate in tls_dir"),
                    HasSubstr("is for DNS b, so others refuse it from host = c; issue one")));
  EXPECT_THAT(check(tls, {"--host=b"}), StartsWith("0 OK"));
  const std::string etcd = "etcd = 127.0.0.1:1\ntrust_network = yes\n";
  EXPECT_THAT(check(etcd + "etcd_user = u\n"),
              StartsWith(file + ":3: etcd_user = u has no password; set etcd_password_file"));
  EXPECT_THAT(check(etcd + "etcd_tls_dir = /nowhere\n"),
              StartsWith(file + ":3: cannot read /nowhere/ca.crt, for etcd: No such file"));
  EXPECT_EQ(exit_code(run({"--config=" + settings(), "--etcd-user=u"})), 2)
      << "no later start helps";
  EXPECT_THAT(check(etcd + "etcd_tls_dir = /nowhere\ndata_address = nosuch.invalid\n"),
              StartsWith(file + ":3: cannot read /nowhere/ca.crt"));
  std::filesystem::create_directory(home + "/etcd");
  std::ofstream(home + "/etcd/ca.crt").flush();
  EXPECT_THAT(check(etcd + "etcd_tls_dir = " + home + "/etcd\n"),
              HasSubstr("/etcd/ca.crt, for etcd: it is empty; correct that, or the"));
  const std::string plain_file = home + "/plain";
  std::ofstream(plain_file) << "x";
  for (const char* name : {"socket", "run-dir"})
    EXPECT_THAT(check("", {"--" + std::string(name) + "=" + plain_file}),
                AllOf(StartsWith("2 flag --" + std::string(name) + ": "),
                      HasSubstr(" = '" + plain_file + "': that is no ")));
  EXPECT_THAT(check("", {"--run-dir=" + plain_file + "/tutti"}),
              HasSubstr("/plain/tutti': a part of that path is a file; choose another"));
  const std::string metrics = "trust_network = yes\nmetrics_listen = 127.0.0.1:7601\n";
  const std::string taken = ":2: setting metrics_listen = '127.0.0.1:7601' has the port of listen";
  EXPECT_THAT(check(metrics, {"--listen=127.0.0.1:7601"}), StartsWith(file + taken));
  EXPECT_THAT(check(metrics, {"--listen=[::]:7601"}), StartsWith(file + taken));
  EXPECT_THAT(check(metrics, {"--listen=127.0.0.2:7601"}), StartsWith("0 OK"));
}

TEST_F(AgentService, NamesThePlaceOfTheSettingThatAFaultIsAbout) {
  EXPECT_THAT(check("\xEF\xBB\xBFmetrics_listen = 0.0.0.0:0\n", {"--host=b"}),
              StartsWith("2 " + settings() + ":1: setting metrics_listen = '0.0.0.0:0' is open"));
  // Names of settings are ordinary words as well.
  EXPECT_THAT(check("host = b\n", {"--worker-binary=/of no host here"}),
              StartsWith("2 flag --worker-binary: there is no worker binary /of no host here"));
}

// What the machine lacks may come: the systemd unit tries again after 1, not after 2.
TEST_F(AgentService, IsTriedAgainWhereTheMachineAndNotTheSettingsForbidAStart) {
  const std::string token = "--token-file=" + write_tokens("sesame role=agent\n");
  const auto start_of = [&](const std::vector<std::string>& flags) {
    std::filesystem::remove(home + "/log");
    const std::string code = std::to_string(exit_code(run(flags)));
    return code + " " + log();
  };
  EXPECT_THAT(start_of({"--worker-binary=/nowhere"}),
              AllOf(StartsWith("1 "), HasSubstr("there is no worker binary /nowhere")));
  EXPECT_THAT(start_of({"--admin-group=no-such-group"}),
              AllOf(StartsWith("1 "), HasSubstr("'no-such-group': there is no such group")));
  EXPECT_THAT(start_of({"--coordinator=203.0.113.1:1", token}),
              AllOf(StartsWith("1 "), HasSubstr("only this machine reaches that")));
  EXPECT_THAT(start_of({"--listen=0.0.0.0:0", "--trust-network=no", "--coordinator=no.invalid:1"}),
              StartsWith("2 tuttid: cannot start: flag --listen: listen = 0.0.0.0:0 is open"));
  EXPECT_THAT(start_of({"--metrics-listen=0.0.0.0:0"}),
              StartsWith("2 tuttid: cannot start: flag --metrics-listen: "));
}

TEST_F(AgentService, NamesAnOptionThatItDoesNotHave) {
  EXPECT_EQ(exit_code(run({"--lsten", "1"})), 2);
  EXPECT_EQ(log(),
            "tuttid: there is no option '--lsten'; did you mean '--listen'? (see tuttid "
            "--help-all)\n");
}

TEST_F(AgentService, DoesNotListenEverywhereWithoutCredentials) {
  for (const char* everywhere : {"--listen=0.0.0.0:0", "--listen=[::]:0"}) {
    EXPECT_EQ(exit_code(run({everywhere})), 2);
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

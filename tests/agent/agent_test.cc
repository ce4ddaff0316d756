// tuttid: flags, hellos, refusals, readiness and the control plane.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/agent/harness.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct AgentDoor : AgentTest {};

TEST_F(AgentDoor, SaysWhenItIsReadyWhereItListensAndWhenItStops) {
  const pid_t agent = start();
  EXPECT_THAT(log(), HasSubstr("socket " + socket() + ", control plane 127.0.0.1:"));
  EXPECT_THAT(log(), HasSubstr("(coordinator)"));
  const int status = end(agent, SIGTERM);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(next_notification(), "STOPPING=1");
}

TEST_F(AgentDoor, GarbageIsRefusedAndHarmsNothing) {
  start();
  TrainerSocket garbage(socket());
  garbage.send_bytes("GET / HTTP/1.1\r\n\r\n");
  const auto answer = garbage.welcome();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code(), TUTTI_INVALID_ARGUMENT);
  EXPECT_TRUE(garbage.ended());
  TrainerSocket nonsense(socket());
  nonsense.send_bytes(std::string("\x04\x00\x00\x00\xff\xff\xff\xff", 8));
  ASSERT_TRUE(nonsense.welcome());
  for (int i = 0; i < 50; ++i) TrainerSocket silent(socket());
  EXPECT_EQ(join("demo").code(), TUTTI_OK);
}

TEST_F(AgentDoor, SilentCallerIsSentAwayInTime) {
  start({"--hello-timeout-ms=50"});
  TrainerSocket silent(socket());
  const auto answer = silent.welcome();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code(), TUTTI_DEADLINE_EXCEEDED);
}

TEST_F(AgentDoor, TheOldestSilentCallerMakesRoom) {
  start({"--half-open-hellos=3"});
  TrainerSocket oldest(socket());
  TrainerSocket second(socket());
  TrainerSocket third(socket());
  EXPECT_EQ(join("demo").code(), TUTTI_OK);
  const auto answer = oldest.welcome();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code(), TUTTI_ABORTED);
  EXPECT_THAT(answer->message(), HasSubstr("3 connections that have not said who they are"));
  second.greet(hello_of("demo", 1));
  EXPECT_EQ(second.welcome()->code(), TUTTI_OK);
}

TEST_F(AgentDoor, TheUserWithMostSilentCallersMakesRoom) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be two users";
  start({"--half-open-hellos=3"});
  TrainerSocket mine(socket());
  EXPECT_EQ(seteuid(65'534), 0);
  TrainerSocket theirs(socket());
  TrainerSocket more(socket());
  TrainerSocket too_many(socket());
  EXPECT_EQ(seteuid(0), 0);
  EXPECT_EQ(theirs.welcome()->code(), TUTTI_ABORTED);
  mine.greet(hello_of("demo"));
  EXPECT_EQ(mine.welcome()->code(), TUTTI_OK);
}

TEST_F(AgentDoor, AHelloThatIsTooLongIsRefusedBeforeItIsRead) {
  start();
  TrainerSocket longwinded(socket());
  longwinded.send_bytes(std::string("\x01\x10\x00\x00", 4));
  const auto answer = longwinded.welcome();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->code(), TUTTI_INVALID_ARGUMENT);
}

TEST_F(AgentDoor, AnotherVersionNamesBoth) {
  start();
  v1::Hello hello = hello_of("demo");
  hello.set_version(kProtocolVersion + 41);
  const v1::Welcome answer = join(hello);
  EXPECT_EQ(answer.code(), TUTTI_FAILED_PRECONDITION);
  EXPECT_THAT(answer.message(),
              AllOf(HasSubstr("version " + std::to_string(kProtocolVersion + 41)),
                    HasSubstr("version " + std::to_string(kProtocolVersion) + ";")));
}

TEST_F(AgentDoor, OnlyTheRightTokenOpens) {
  environment["TUTTI_TOKEN"] = "sesame";
  start();
  EXPECT_EQ(join("demo").code(), TUTTI_UNAUTHENTICATED);
  const auto logged = [this] {
    const std::string text = log();
    const std::string line = "refused a trainer: UNAUTHENTICATED: a token is needed";
    size_t count = 0;
    for (size_t at = text.find(line); at != std::string::npos; at = text.find(line, at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(join("demo").code(), TUTTI_UNAUTHENTICATED);
  EXPECT_TRUE(await([&] { return logged() == 1; })) << log();
  v1::Hello hello = hello_of("demo");
  hello.set_token("sesamE");
  EXPECT_EQ(join(hello).code(), TUTTI_UNAUTHENTICATED);
  hello.set_token("sesame");
  EXPECT_EQ(join(hello).code(), TUTTI_OK);
}

TEST_F(AgentDoor, ATokenMayBeInAFileThatOthersCannotRead) {
  const std::string path = ::testing::TempDir() + "agent_test.token." + std::to_string(getpid());
  std::ofstream(path) << "sesame role=trainer\n";
  environment["TUTTI_TOKEN_FILE"] = path;
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  start();
  std::filesystem::remove(path);
  EXPECT_EQ(join("demo").code(), TUTTI_UNAUTHENTICATED);
  v1::Hello hello = hello_of("demo");
  hello.set_token("sesame");
  EXPECT_EQ(join(hello).code(), TUTTI_OK);
  EXPECT_EQ(admin_drain(control(), false, kPatienceMs).code(), Code::unauthenticated);
}

TEST_F(AgentDoor, JobsAndRanksThatCannotBeAreInvalid) {
  start();
  EXPECT_EQ(join("").code(), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(join("../../etc/passwd\n").code(), TUTTI_INVALID_ARGUMENT);
  const v1::Welcome answer = join("demo", 4);
  EXPECT_EQ(answer.code(), TUTTI_INVALID_ARGUMENT);
  EXPECT_THAT(answer.message(), HasSubstr("rank 4 is not below the world size 4"));
  EXPECT_EQ(count_in_log("started"), 0u);
}

TEST_F(AgentDoor, DrainingRefusesNewJoinsUntilUndone) {
  start();
  ASSERT_TRUE(admin_drain(address(), false, kPatienceMs).ok());
  const v1::Welcome refused = join("demo");
  EXPECT_EQ(refused.code(), TUTTI_UNAVAILABLE);
  EXPECT_EQ(refused.message(), "host a is draining");
  EXPECT_EQ(admin_status(address(), true, kPatienceMs)->agents(0).state(), "draining");
  ASSERT_TRUE(admin_drain(address(), true, kPatienceMs).ok());
  EXPECT_EQ(join("demo").code(), TUTTI_OK);
}

TEST_F(AgentDoor, StatusReportsTheAgentAndItsWorkers) {
  const pid_t agent = start();
  join("red", 2);
  join("blue");
  const auto reply = admin_status(address(), false, kPatienceMs);
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  const v1::AgentReport& report = reply->agents(0);
  EXPECT_EQ(report.host(), "a");
  EXPECT_EQ(report.address(), control());
  EXPECT_EQ(report.pid(), static_cast<uint32_t>(agent));
  EXPECT_EQ(report.state(), "serving");
  EXPECT_EQ(report.version(), "0.1.0");
  EXPECT_TRUE(report.coordinator());
  ASSERT_EQ(report.workers_size(), 2);
  EXPECT_EQ(report.workers(0).job(), "blue");
  EXPECT_EQ(report.workers(1).job(), "red");
  EXPECT_EQ(report.workers(1).ranks(0).rank(), 2u);
  EXPECT_EQ(report.workers(1).ranks(0).pid(), static_cast<uint32_t>(getpid()));
}

TEST_F(AgentDoor, SecondAgentInOnePlaceIsRefused) {
  start();
  EXPECT_EQ(exit_code(run({"--socket=" + home + "/other.sock"})), 1);
  EXPECT_THAT(log(), HasSubstr("another tuttid uses " + home + "/run"));
  EXPECT_EQ(exit_code(run({"--run-dir=" + home + "/other"})), 1);
  EXPECT_THAT(log(), HasSubstr(socket() + " is served by another process"));
  EXPECT_EQ(exit_code(run({"--run-dir=" + home + "/other", "--listen=" + control()})), 1);
  EXPECT_THAT(log(), HasSubstr("cannot listen on " + control()));
  EXPECT_EQ(join("demo").code(), TUTTI_OK);
}

TEST_F(AgentDoor, SettingsThatCannotBeUsedAreNamed) {
  EXPECT_EQ(exit_code(run({"--run-dir=/proc/tutti"})), 1);
  EXPECT_THAT(log(), AllOf(HasSubstr("cannot make the directory /proc/tutti"),
                           HasSubstr("or choose another with the setting run_dir")));
  EXPECT_EQ(exit_code(run({"--socket=/proc/tutti/tuttid.sock"})), 1);
  EXPECT_THAT(log(), HasSubstr("or choose another with the setting socket"));
  EXPECT_EQ(exit_code(run({"--socket=/proc/tuttid.sock"})), 1);
  EXPECT_THAT(log(), AllOf(HasSubstr("cannot bind /proc/tuttid.sock"),
                           HasSubstr("choose another path with the setting socket")));
  EXPECT_EQ(exit_code(run({"--listen=203.0.113.1:7601"})), 1);
  EXPECT_THAT(log(), HasSubstr("setting listen = '203.0.113.1:7601': this is no address of this"));
  EXPECT_EQ(exit_code(run({"--data-address=0.0.0.0"})), 2);
  EXPECT_THAT(log(), HasSubstr("setting data_address = '0.0.0.0': other hosts cannot dial this"));
  EXPECT_EQ(exit_code(run({"--data-ports=7700-7610"})), 2);
  EXPECT_EQ(exit_code(run({"--etcd=203.0.113.1:2379"})), 1);
  EXPECT_THAT(log(), HasSubstr("only this machine reaches that, and etcd = 203.0.113.1:2379"));
  const std::vector<std::string> elected = {"--listen=0.0.0.0:0", "--token=for-agents",
                                            "--etcd=203.0.113.1:2379"};
  EXPECT_EQ(exit_code(run(elected)), 1);
  EXPECT_THAT(log(), HasSubstr("who reaches it without TLS can name a coordinator"));
  std::vector<std::string> with_user = elected;
  with_user.push_back("--etcd-user=tutti");
  EXPECT_EQ(exit_code(run(with_user)), 2);
  EXPECT_THAT(log(), HasSubstr("etcd_user = tutti has no password; set etcd_password_file"));
  with_user.push_back("--etcd-password-file=" + home + "/password");
  EXPECT_EQ(exit_code(run(with_user)), 1);
  EXPECT_THAT(log(), HasSubstr("etcd_user = tutti would send its password in the clear"));
}

// Whether the process has the file open.
bool opened(pid_t pid, const std::string& path) {
  const std::filesystem::path process = "/proc/" + std::to_string(pid);
  std::error_code gone;
  if (std::filesystem::read_symlink(process / "exe", gone).filename() != "tuttid") return false;
  for (const auto& entry : std::filesystem::directory_iterator(process / "fd", gone))
    if (std::filesystem::read_symlink(entry.path(), gone) == path) return true;
  return false;
}

TEST_F(AgentDoor, WaitsForAKilledPredecessorToBeGone) {
  const std::string lock = home + "/run/agent.lock";
  std::filesystem::create_directories(home + "/run");
  Fd predecessor(open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(flock(predecessor.get(), LOCK_EX | LOCK_NB), 0);
  const pid_t agent = run({});
  EXPECT_TRUE(await([&] { return opened(agent, lock); }));
  predecessor.reset();
  EXPECT_TRUE(next_notification().starts_with("READY=1\nSTATUS=serves: socket ")) << log();
  EXPECT_EQ(join("demo").code(), TUTTI_OK);
}

TEST_F(AgentDoor, StoppedAgentIsNoticedByItsCoordinator) {
  const std::string tokens = "--token-file=" + write_tokens("sesame role=agent\n");
  start({tokens});
  const std::string coordinator = control();
  const auto agents = [&] {
    const auto reply = admin_status(address(), false, kPatienceMs);
    return reply.ok() ? std::ranges::count(reply->agents(), "serving", &v1::AgentReport::state) : 0;
  };
  const pid_t second = start({"--socket=" + home + "/b.sock", "--run-dir=" + home + "/b",
                              "--host=b", "--coordinator=" + coordinator, tokens});
  EXPECT_TRUE(await([&] { return agents() == 2; }));
  kill(second, SIGSTOP);
  EXPECT_TRUE(await([&] { return agents() == 1; }));
  kill(second, SIGCONT);
  EXPECT_TRUE(await([&] { return agents() == 2; }));
}

TEST_F(AgentDoor, LastOfFileEnvironmentAndFlagsWins) {
  std::ofstream(home + "/conf") << "hello_timeout_ms = 1\nhost = file\nslice_bytes = 4096\n";
  environment = {{"TUTTI_HOST", "environment"}, {"TUTTI_HELLO_TIMEOUT_MS", "9000"}};
  start({"--config=" + home + "/conf", "--host=flag"});
  const v1::Welcome welcome = join("demo");
  EXPECT_EQ(field(welcome, "host"), "flag");
  EXPECT_EQ(field(welcome, "slice"), "4096");
}

TEST_F(AgentDoor, WrongCommandLinesSayWhatIsWrong) {
  EXPECT_EQ(exit_code(run({"--no-such-flag=1"})), 2);
  EXPECT_THAT(log(), HasSubstr("no-such-flag"));
  EXPECT_EQ(exit_code(run({"--join-timeout-ms=soon"})), 2);
  EXPECT_THAT(log(), HasSubstr("join_timeout_ms = 'soon'"));
  EXPECT_EQ(exit_code(run({"--log-level=loud"})), 2);
  EXPECT_THAT(log(), HasSubstr("'loud': expected one of: trace debug"));
  EXPECT_EQ(exit_code(run({"--config=/no/such/file"})), 2);
  EXPECT_THAT(log(), HasSubstr("/no/such/file"));
  EXPECT_EQ(exit_code(run({"--listen=nowhere"})), 2);
  EXPECT_THAT(log(), HasSubstr("expected host:port"));
}

// As where a variable of the shell is not set.
TEST_F(AgentDoor, AFlagThatIsSetToNothingDoesNotTakeTheNext) {
  EXPECT_EQ(exit_code(run({"--token=", "--listen=203.0.113.1:7601"})), 1);
  EXPECT_THAT(log(), HasSubstr("setting listen = '203.0.113.1:7601': this is no address"));
  EXPECT_EQ(exit_code(run({"--listen=", "--trust-network=yes"})), 2);
  EXPECT_THAT(log(), HasSubstr("setting listen = ''"));
}

TEST_F(AgentDoor, HelpAndVersionAreAnswered) {
  EXPECT_EQ(exit_code(run({"--version"})), 0);
  EXPECT_THAT(log(), HasSubstr("tuttid 0.1.0"));
  EXPECT_EQ(exit_code(run({"--help"})), 0);
  EXPECT_THAT(log(), AllOf(HasSubstr("--coordinator"), HasSubstr("--config FILE"),
                           Not(HasSubstr("--worker-idle-ms"))));
  EXPECT_EQ(exit_code(run({"--help-all"})), 0);
  EXPECT_THAT(log(),
              AllOf(HasSubstr("Basic:"), HasSubstr("Expert:"), HasSubstr("--worker-idle-ms")));
}

}  // namespace
}  // namespace tutti

// Child processes that do not outlive their parent, and network namespaces that end with theirs.
#include "daemon/launch/child_processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

#include "daemon/launch/host_network.h"
#include "tests/support/await.h"

namespace tutti {
namespace {

constexpr Millis kTestTimeout{30'000};

class ChildProcessesTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { block_launcher_signals(); }

  // Runs a shell script to its end and returns its exit code.
  int run_script(const std::string& script, SpawnOptions options = {}) {
    options.command = {"sh", "-c", script};
    int code = -1;
    const Result<pid_t> pid = children_.spawn(options, [&code](int ended) { code = ended; });
    EXPECT_TRUE(pid.ok()) << pid.status().to_string();
    await(loop_, [&code] { return code >= 0; });
    return code;
  }

  Loop loop_;
  ChildProcesses children_{loop_};
};

// A pipe for the standard output of a script.
struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
  }
  std::string read_line() const {
    std::string out;
    for (char c = 0; read(read_end.get(), &c, 1) == 1 && c != '\n';) out += c;
    return out;
  }
  Fd read_end, write_end;
};

TEST_F(ChildProcessesTest, ExitCodesAreAShells) {
  EXPECT_EQ(run_script("exit 0"), 0);
  EXPECT_EQ(run_script("exit 3"), 3);
  EXPECT_EQ(run_script("kill -9 $$"), 128 + SIGKILL);
  EXPECT_EQ(describe_exit(3), "exited with code 3");
  EXPECT_EQ(describe_exit(128 + SIGKILL), "was killed by SIGKILL");
}

TEST_F(ChildProcessesTest, ChildrenStartWithNoSignalBlocked) {
  EXPECT_EQ(run_script("kill -TERM $$; exit 0"), 128 + SIGTERM);
}

TEST_F(ChildProcessesTest, EnvironmentIsInheritedAndOverridden) {
  SpawnOptions options;
  options.environment.set("TUTTI_RANK", "7");
  EXPECT_EQ(run_script("test \"$TUTTI_RANK\" = 7 && test -n \"$PATH\"", options), 0);
  EXPECT_EQ(options.environment.get("TUTTI_RANK"), "7");
  EXPECT_EQ(options.environment.get("NO_SUCH_NAME"), "");
}

TEST_F(ChildProcessesTest, ProgramThatIsNotThere) {
  const Result<pid_t> pid = children_.spawn({.command = {"no-such-program"}}, [](int) { FAIL(); });
  ASSERT_EQ(pid.status().code(), Code::not_found);
  EXPECT_NE(pid.status().message().find("no-such-program"), std::string::npos);
  EXPECT_NE(pid.status().message().find("No such file"), std::string::npos);
}

TEST_F(ChildProcessesTest, SignalsReachTheWholeGroup) {
  Pipe pipe;
  int code = -1;
  SpawnOptions options{.command = {"sh", "-c", "sleep 600 & echo ready; wait"},
                       .out = pipe.write_end.get()};
  const Result<pid_t> pid = children_.spawn(options, [&code](int ended) { code = ended; });
  ASSERT_TRUE(pid.ok());
  EXPECT_EQ(pipe.read_line(), "ready");
  pipe.write_end.reset();
  children_.signal(*pid, SIGTERM);
  await(loop_, [&code] { return code >= 0; });
  EXPECT_EQ(code, 128 + SIGTERM);
  EXPECT_FALSE(children_.is_running(*pid));
  EXPECT_EQ(pipe.read_line(), "");  // End of file: the grandchild has closed its end, too.
}

TEST_F(ChildProcessesTest, EndAllFindsOrphansInOtherGroups) {
  Pipe pipe;
  SpawnOptions options{.out = pipe.write_end.get()};
  EXPECT_EQ(run_script("setsid sh -c 'echo $$; exec sleep 600' &", options), 0);
  pipe.write_end.reset();
  const pid_t orphan = std::stoi(pipe.read_line());
  EXPECT_EQ(kill(orphan, 0), 0);
  children_.end_all();
  EXPECT_EQ(kill(orphan, 0), -1);
  EXPECT_EQ(waitpid(-1, nullptr, 0), -1) << "nothing is left to reap";
}

// create_networks() moves this thread into a namespace; the test moves it back.
TEST_F(ChildProcessesTest, HostsHaveNetworksOfTheirOwnAsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
  const Fd before(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  {
    const Result<std::vector<HostNetwork>> networks = create_networks(2, 100'000'000);
    if (networks.status().code() == Code::not_found || networks.status().code() == Code::internal)
      GTEST_SKIP() << networks.status().message();
    ASSERT_TRUE(networks.ok()) << networks.status().to_string();
    SpawnOptions on_a{.netns = (*networks)[0].netns.get()};
    EXPECT_EQ(run_script("ip -4 addr show dev eth0 | grep -q " + (*networks)[0].address, on_a), 0);
    EXPECT_EQ(run_script("tc qdisc show dev eth0 | grep -q 'tbf.*rate 100Mbit'", on_a), 0);
    EXPECT_EQ(run_script("ip route get " + (*networks)[1].address + " | grep -q eth0", on_a), 0);
    EXPECT_EQ(run_script("tc qdisc show dev port1 | grep -q 'tbf.*rate 100Mbit'"), 0);
  }
  ASSERT_EQ(setns(before.get(), CLONE_NEWNET), 0);
}

}  // namespace
}  // namespace tutti

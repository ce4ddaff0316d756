// What is left behind by a launcher that was killed, and who clears it up.
#include "daemon/launch/folder_keeper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <spawn.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr int kPatienceMs = 60'000;

struct LaunchFolderKeeper : testing::Test {
  LaunchFolderKeeper() { write("token"); }
  ~LaunchFolderKeeper() override {
    for (const pid_t pid : started) kill(pid, SIGKILL);
    for (const pid_t pid : started) waitpid(pid, nullptr, 0);
  }

  void write(const std::string& name) const {
    fs::create_directories(folder);
    std::ofstream(folder / name) << name;
  }
  // A process that looks like a worker whose sockets are in the folder.
  pid_t start_worker() { return start("TUTTI_RUN_DIR=" + folder.string() + "/a/run", "600"); }
  pid_t start(std::string environment, std::string argument) {
    std::string sleep = "sleep";
    std::array<char*, 3> argv{sleep.data(), argument.data(), nullptr};
    std::array<char*, 2> envp{environment.data(), nullptr};
    pid_t pid = 0;
    EXPECT_EQ(posix_spawn(&pid, "/bin/sleep", nullptr, nullptr, argv.data(), envp.data()), 0);
    started.push_back(pid);
    while (!has_environment(pid)) sched_yield();
    return pid;
  }
  static bool has_environment(pid_t pid) {
    std::string text;
    return bool(std::ifstream("/proc/" + std::to_string(pid) + "/environ") >> text);
  }
  // Waits for the end of a process that this one started.
  void expect_killed(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    std::erase(started, pid);
  }

  const TemporaryDirectory folder;
  std::vector<pid_t> started;
};

TEST_F(LaunchFolderKeeper, EndsTheFoldersWorkersAndNoOthers) {
  const pid_t worker = start_worker();
  const pid_t other = start("TUTTI_RUN_DIR=" + folder.string() + "-of-another/a/run", "600");
  clear_up(folder, [] {});
  expect_killed(worker);
  EXPECT_EQ(waitpid(other, nullptr, WNOHANG), 0);
  EXPECT_FALSE(fs::exists(folder));
}

// A worker that was about to start, and what it wrote.
TEST_F(LaunchFolderKeeper, GoesOnUntilNothingIsLeft) {
  pid_t worker = start_worker();
  int pauses = 0;
  clear_up(folder, [&] {
    if (++pauses > 3) return;
    expect_killed(worker);
    worker = start_worker();
    write("late");
  });
  expect_killed(worker);
  EXPECT_GE(pauses, 5);
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(LaunchFolderKeeper, GivesUpWhereThereIsAlwaysMore) {
  start_worker();
  size_t pauses = 0;
  clear_up(folder, [&] {
    ++pauses;
    expect_killed(started.back());
    start_worker();
  });
  EXPECT_GT(pauses, 10u);
}

TEST_F(LaunchFolderKeeper, RemovesTheTokenFirst) {
  for (int i = 0; i < 20; ++i) write(std::to_string(i));
  const Fd events(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(inotify_add_watch(events.get(), folder.c_str(), IN_DELETE), 0);
  clear_up(folder, [] {});
  alignas(inotify_event) std::array<char, 4096> bytes{};
  ASSERT_GT(read(events.get(), bytes.data(), bytes.size()), 0);
  EXPECT_STREQ(reinterpret_cast<const inotify_event*>(bytes.data())->name, "token");
}

// What kernels before 5.9 say to close_range. False: filters are not permitted.
bool forbid_close_range() {
  std::array<sock_filter, 4> code{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{.len = code.size(), .filter = code.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum LauncherEnd { kStarted = 0, kNoKeeper, kNoFilter };

// Its own end of a pipe, which the keeper must not hold, tells the test of the launcher's end.
LauncherEnd run_launcher(const fs::path& folder, int ready, bool old_kernel) {
  if (old_kernel && !forbid_close_range()) return kNoFilter;
  const Result<FolderKeeper> keeper = FolderKeeper::start(folder);
  if (!keeper.ok()) return kNoKeeper;
  close(ready);
  pause();
  return kStarted;
}

struct LaunchFolderKeeperOfAKilledLauncher : LaunchFolderKeeper,
                                             testing::WithParamInterface<bool> {};

TEST_P(LaunchFolderKeeperOfAKilledLauncher, HoldsNoneOfItsDescriptorsAndClearsUp) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const pid_t worker = start_worker();
  const pid_t launcher = fork();
  if (launcher == 0) _exit(run_launcher(folder, write_end.get(), GetParam()));
  write_end.reset();
  pollfd closed{read_end.get(), POLLIN, 0};
  EXPECT_EQ(poll(&closed, 1, kPatienceMs), 1) << "the keeper holds a descriptor";
  kill(launcher, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoFilter)
    GTEST_SKIP() << "seccomp is not permitted, which hides a system call";
  EXPECT_TRUE(WIFSIGNALED(status));
  expect_killed(worker);
}

INSTANTIATE_TEST_SUITE_P(OnKernels, LaunchFolderKeeperOfAKilledLauncher, testing::Bool(),
                         [](const auto& test) { return test.param ? "old" : "new"; });

}  // namespace
}  // namespace tutti

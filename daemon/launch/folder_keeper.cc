#include "daemon/launch/folder_keeper.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include "daemon/base/program.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 50;
constexpr int kCleanRounds = 2;  // A process that starts has no environment for a moment.
constexpr useconds_t kPauseUs = 100'000;

// A worker, or an agent, which may be about to start one.
bool is_in(const fs::path& process, const fs::path& folder) {
  const std::string within = folder.string() + "/";
  return text_of_file(process / "environ").find("TUTTI_RUN_DIR=" + within) != std::string::npos ||
         text_of_file(process / "cmdline").find("--run-dir=" + within) != std::string::npos;
}

// Ranks end with the launcher; workers are made to outlive agents. Returns how many were there.
int end_processes(const fs::path& folder) {
  int ended = 0;
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos || !is_in(entry->path(), folder))
      continue;
    kill(static_cast<pid_t>(std::stol(name)), SIGKILL);
    ++ended;
  }
  return ended;
}

// Kernels before 5.9, and some sandboxes, have no close_range.
void close_all_but_stdin() {
  if (syscall(SYS_close_range, 1U, ~0U, 0U) == 0) return;
  std::vector<int> open;
  std::error_code error;
  for (fs::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error))
    open.push_back(std::stoi(entry->path().filename()));
  for (const int fd : open)
    if (fd != STDIN_FILENO) close(fd);
}

void await_end_of(int pipe) {
  char byte = 0;
  while (read(pipe, &byte, 1) < 0 && errno == EINTR) {
  }
}

[[noreturn]] void keep(const fs::path& folder, int pipe) {
  setsid();
  prctl(PR_SET_NAME, "tutti-keeper");
  dup2(pipe, STDIN_FILENO);
  close_all_but_stdin();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);
  await_end_of(STDIN_FILENO);
  clear_up(folder, [] { usleep(kPauseUs); });
  _exit(0);
}

}  // namespace

void clear_up(const fs::path& folder, const std::function<void()>& pause) {
  std::error_code ignored;
  fs::remove(folder / kTokenFile, ignored);
  int clean = 0;
  for (int round = 0; round < kRounds && clean < kCleanRounds; ++round) {
    if (round != 0) pause();
    const int ended = end_processes(folder);
    fs::remove_all(folder, ignored);
    clean = ended == 0 && !fs::exists(folder, ignored) ? clean + 1 : 0;
  }
}

Result<FolderKeeper> FolderKeeper::start(const fs::path& folder) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return errno_status("cannot make a pipe");
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return errno_status("cannot start a process");
  if (pid == 0) {
    write_end.reset();
    keep(folder, read_end.get());
  }
  return FolderKeeper(std::move(write_end));
}

}  // namespace tutti

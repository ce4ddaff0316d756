#include "daemon/launch/folder_keeper.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string>

namespace tutti {
namespace {

namespace fs = std::filesystem;

bool is_worker_in(const fs::path& process, const fs::path& folder) {
  std::ostringstream environment;
  environment << std::ifstream(process / "environ").rdbuf();
  return environment.str().find("TUTTI_RUN_DIR=" + folder.string() + "/") != std::string::npos;
}

// Agents and ranks end with the launcher; workers are made to outlive agents.
void end_workers(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") == std::string::npos &&
        is_worker_in(entry.path(), folder))
      kill(static_cast<pid_t>(std::stol(name)), SIGKILL);
  }
}

void await_end_of(int pipe) {
  char byte = 0;
  while (read(pipe, &byte, 1) < 0 && errno == EINTR) {
  }
}

[[noreturn]] void keep(const fs::path& folder, int pipe) {
  setsid();
  prctl(PR_SET_NAME, "tutti-keeper");
  dup2(pipe, 0);
  syscall(SYS_close_range, 1U, ~0U, 0U);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);
  await_end_of(0);
  end_workers(folder);
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  _exit(0);
}

}  // namespace

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

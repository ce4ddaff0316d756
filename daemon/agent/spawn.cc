#include "daemon/agent/spawn.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "daemon/agent/capabilities.h"
#include "daemon/base/fd.h"
#include "daemon/base/text.h"

namespace tutti {
namespace {

constexpr int kAboveControl = 10;  // The pipe's descriptor must not be kControlFd.

// What the child needs, prepared before the fork: between fork and exec the child of a process with
// threads must not allocate.
struct Prepared {
  std::vector<std::string> texts;
  std::vector<char*> argv;
  std::vector<char*> envp;
  bool drops_root = false;
};

bool is_listed(std::string_view name, const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns, [name](std::string_view pattern) {
    if (!pattern.ends_with('*')) return name == pattern;
    return name.starts_with(pattern.substr(0, pattern.size() - 1));
  });
}

Prepared prepare(const WorkerProgram& program) {
  Prepared prepared;
  prepared.texts.push_back(program.binary);
  for (const std::string& argument : program.arguments) prepared.texts.push_back(argument);
  for (const auto& [name, value] : program.environment)
    prepared.texts.push_back(name + "=" + value);
  const size_t arguments = 1 + program.arguments.size();
  for (size_t i = 0; i < prepared.texts.size(); ++i)
    (i < arguments ? prepared.argv : prepared.envp).push_back(prepared.texts[i].data());
  prepared.argv.push_back(nullptr);
  prepared.envp.push_back(nullptr);
  prepared.drops_root = geteuid() == 0 && program.uid != 0;
  return prepared;
}

bool become_user(const WorkerProgram& program) {
  return setgroups(program.groups.size(), program.groups.data()) == 0 &&
         setresgid(program.gid, program.gid, program.gid) == 0 &&
         setresuid(program.uid, program.uid, program.uid) == 0;
}

// The agent's may be protected (OOMScoreAdjust= of its unit); to give that up is always allowed.
void become_ordinary_for_oom() {
  const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) (void)!write(score, "0", 1);
}

// Runs in the child, with async-signal-safe calls only. Returns only on failure, with errno set.
void become_worker(const WorkerProgram& program, const Prepared& prepared, int control,
                   int output) {
  setsid();
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  if (control == kControlFd)
    fcntl(control, F_SETFD, 0);
  else
    dup2(control, kControlFd);
  syscall(SYS_close_range, kControlFd + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  become_ordinary_for_oom();
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return;
  // Opened before the user changes: the job's user may have no access to the binary's directory.
  const int binary = open(program.binary.c_str(), O_PATH | O_CLOEXEC);
  if (binary < 0) return;
  const Keep keep = program.uid == 0 ? Keep::what_root_uses : Keep::nothing;
  bound_capabilities(keep);
  if (prepared.drops_root && !become_user(program)) return;
  if (!drop_capabilities(keep)) return;
  execveat(binary, "", prepared.argv.data(), prepared.envp.data(), AT_EMPTY_PATH);
}

struct Pipe {
  Fd read;
  Fd write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return errno_status("cannot make a pipe");
  Pipe pipe{Fd(ends[0]), Fd(ends[1])};
  pipe.write.reset(fcntl(pipe.write.get(), F_DUPFD_CLOEXEC, kAboveControl));
  return pipe;
}

}  // namespace

std::map<std::string, std::string> inherited_environment(std::string_view names) {
  const std::vector<std::string> patterns = split(names, ' ');
  std::map<std::string, std::string> inherited;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || !is_listed(text.substr(0, equals), patterns)) continue;
    inherited.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return inherited;
}

Result<pid_t> spawn_worker(const WorkerProgram& program, int control, int output) {
  const Prepared prepared = prepare(program);
  Result<Pipe> failure = make_pipe();
  if (!failure.ok()) return failure.status();
  const pid_t pid = fork();
  if (pid < 0) return errno_status("cannot start a process");
  if (pid == 0) {
    become_worker(program, prepared, control, output);
    const int error = errno;
    (void)!write(failure->write.get(), &error, sizeof(error));
    _exit(127);
  }
  failure->write.reset();
  int error = 0;
  // Does not block for long: exec closes the other end.
  if (read(failure->read.get(), &error, sizeof(error)) != sizeof(error)) return pid;
  waitpid(pid, nullptr, 0);
  errno = error;
  return errno_status("cannot run " + program.binary + " (setting worker_binary)");
}

std::string describe_end(int wait_status) {
  if (!WIFSIGNALED(wait_status))
    return "ended with exit code " + std::to_string(WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
}

}  // namespace tutti

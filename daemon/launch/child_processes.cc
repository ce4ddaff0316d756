#include "daemon/launch/child_processes.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tutti {
namespace {

std::vector<char*> pointers_to(std::vector<std::string>& lines) {
  std::vector<char*> out;
  for (std::string& line : lines) out.push_back(line.data());
  out.push_back(nullptr);
  return out;
}

// Runs in the child between fork and exec: system calls only. Returns where one fails.
void exec_child(const SpawnOptions& options, pid_t parent, char** command, char** environment) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // The parent died before prctl took hold.
  setpgid(0, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGPIPE}) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (options.netns >= 0 && setns(options.netns, CLONE_NEWNET) != 0) return;
  const std::array<int, 3> from = {options.in, options.out, options.err};
  for (int fd = 0; fd < 3; ++fd)
    if (from[static_cast<size_t>(fd)] >= 0 && dup2(from[static_cast<size_t>(fd)], fd) < 0) return;
  execvpe(command[0], command, environment);
}

// Returns the child's errno, or 0 once it runs the program: the pipe closes on exec.
int exec_errno(int pipe) {
  int error = 0;
  ssize_t bytes = 0;
  do bytes = read(pipe, &error, sizeof error);
  while (bytes < 0 && errno == EINTR);
  return bytes == sizeof error ? error : 0;
}

// Reads the fourth field of /proc/PID/stat; the second is a name that may hold any character.
pid_t parent_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text(4096,
                   '\0');  // read() fails where the process has just ended; iterators would throw.
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  char state = 0;
  pid_t parent = 0;
  std::istringstream(text.substr(name_end + 1)) >> state >> parent;
  return parent;
}

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (parent_of(name) == getpid()) out.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return out;
}

}  // namespace

Environment::Environment() {
  for (char** line = environ; *line != nullptr; ++line) {
    const std::string text = *line;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) values_[text.substr(0, equals)] = text.substr(equals + 1);
  }
}

void Environment::set_default(const std::string& name, const std::string& value) {
  if (get(name).empty() && !value.empty()) set(name, value);
}

std::string Environment::get(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? "" : found->second;
}

std::vector<std::string> Environment::lines() const {
  std::vector<std::string> out;
  for (const auto& [name, value] : values_) out.push_back(name + "=" + value);
  return out;
}

std::string describe_exit(int code) {
  const char* name = code > 128 ? sigabbrev_np(code - 128) : nullptr;
  return name != nullptr ? std::string("was killed by SIG") + name
                         : "exited with code " + std::to_string(code);
}

ChildProcesses::ChildProcesses(Loop& loop) : watch_(loop, {SIGCHLD}, [this](int) { reap(); }) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Result<pid_t> ChildProcesses::spawn(const SpawnOptions& options, OnExit on_exit) {
  std::vector<std::string> command = options.command;
  std::vector<std::string> environment = options.environment.lines();
  const std::vector<char*> argv = pointers_to(command);
  const std::vector<char*> envp = pointers_to(environment);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return errno_status("cannot make a pipe");
  const Fd result(ends[0]);
  Fd report(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return errno_status("cannot start " + options.command.front());
  if (pid == 0) {
    exec_child(options, parent, const_cast<char**>(argv.data()), const_cast<char**>(envp.data()));
    const int error = errno;
    if (write(report.get(), &error, sizeof error) < 0) _exit(126);
    _exit(127);
  }
  report.reset();
  if (const int error = exec_errno(result.get()); error != 0) {
    waitpid(pid, nullptr, 0);
    return not_found("cannot run '" + options.command.front() + "': " + strerrordesc_np(error));
  }
  children_[pid] = std::move(on_exit);
  return pid;
}

void ChildProcesses::signal(pid_t pid, int signal) {
  if (is_running(pid)) ::kill(-pid, signal);
}

void ChildProcesses::reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto child = children_.extract(pid);
    if (!child.empty())
      child.mapped()(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
  }
}

void ChildProcesses::end_all() {
  children_.clear();
  for (std::vector<pid_t> alive; !(alive = children_of_this_process()).empty();)
    for (const pid_t pid : alive) {
      ::kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
}

void block_launcher_signals() { block_signals({SIGINT, SIGTERM, SIGHUP, SIGCHLD}); }

}  // namespace tutti

#include "daemon/launch/process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
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

sigset_t signal_set(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

std::vector<char*> pointers_to(std::vector<std::string>& lines) {
  std::vector<char*> out;
  for (std::string& line : lines) out.push_back(line.data());
  out.push_back(nullptr);
  return out;
}

// In the child, between fork and exec: system calls only. Returns where one fails.
void become(const SpawnOptions& options, pid_t parent, char** command, char** environment) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // The parent died before prctl took hold.
  setpgid(0, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGPIPE}) ::signal(signal, SIG_DFL);
  const sigset_t none = signal_set({});
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (options.network >= 0 && setns(options.network, CLONE_NEWNET) != 0) return;
  const std::array<int, 3> from = {options.in, options.out, options.err};
  for (int fd = 0; fd < 3; ++fd)
    if (from[static_cast<size_t>(fd)] >= 0 && dup2(from[static_cast<size_t>(fd)], fd) < 0) return;
  execvpe(command[0], command, environment);
}

// The child's errno, or 0 once it runs the program (the pipe closes on exec).
int exec_errno(int pipe) {
  int error = 0;
  ssize_t bytes = 0;
  do bytes = read(pipe, &error, sizeof error);
  while (bytes < 0 && errno == EINTR);
  return bytes == sizeof error ? error : 0;
}

// The fourth field of /proc/PID/stat, after a name that may hold anything.
pid_t parent_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text(4096, '\0');  // Of a process that ends meanwhile read() fails; iterators throw.
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

Environment& Environment::set(const std::string& name, const std::string& value) {
  values_[name] = value;
  return *this;
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

int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string describe_exit(int code) {
  const char* name = code > 128 ? sigabbrev_np(code - 128) : nullptr;
  return name != nullptr ? std::string("was killed by SIG") + name
                         : "exited with code " + std::to_string(code);
}

ChildProcesses::ChildProcesses(Loop& loop) : loop_(loop) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const sigset_t set = signal_set({SIGCHLD});
  signals_.reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  require(signals_.valid(), "signalfd for SIGCHLD");
  require(loop_.watch(signals_.get(), EPOLLIN, [this](uint32_t) { reap(); }).ok(),
          "watching a fresh signalfd");
}

ChildProcesses::~ChildProcesses() {
  loop_.unwatch(signals_.get());
  end_all();
}

Result<pid_t> ChildProcesses::spawn(const SpawnOptions& options, Ended ended) {
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
    become(options, parent, const_cast<char**>(argv.data()), const_cast<char**>(envp.data()));
    const int error = errno;
    if (write(report.get(), &error, sizeof error) < 0) _exit(126);
    _exit(127);
  }
  report.reset();
  if (const int error = exec_errno(result.get()); error != 0) {
    waitpid(pid, nullptr, 0);
    return not_found("cannot run '" + options.command.front() + "': " + strerrordesc_np(error));
  }
  children_[pid] = std::move(ended);
  return pid;
}

void ChildProcesses::signal(pid_t pid, int signal) {
  if (runs(pid)) ::kill(-pid, signal);
}

void ChildProcesses::reap() {
  signalfd_siginfo ignored;
  while (read(signals_.get(), &ignored, sizeof ignored) > 0) continue;
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto child = children_.extract(pid);
    if (!child.empty()) child.mapped()(exit_code_of(status));
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

void block_signals() {
  const sigset_t set = signal_set({SIGINT, SIGTERM, SIGHUP, SIGCHLD});
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

}  // namespace tutti

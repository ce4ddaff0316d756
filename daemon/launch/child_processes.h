// Child processes that cannot outlive this one. ChildProcesses is the only place of the launcher
// that forks and reaps.
//
// Children die with the thread that spawned them (PR_SET_PDEATHSIG), and their orphans become
// children of this process (PR_SET_CHILD_SUBREAPER), so that end_all() ends all that they started.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/signal_watch.h"
#include "daemon/base/status.h"

namespace tutti {

// The environment of a child: a copy of this process's, to change.
class Environment {
 public:
  Environment();
  void set(const std::string& name, const std::string& value) { values_[name] = value; }
  void set_default(const std::string& name, const std::string& value);  // Unless it has a value.
  std::string get(const std::string& name) const;                       // "" where unset.
  std::vector<std::string> lines() const;                               // NAME=VALUE.

 private:
  std::map<std::string, std::string> values_;
};

struct SpawnOptions {
  std::vector<std::string> command;  // The program is looked up in PATH.
  Environment environment;
  int netns = -1;  // Descriptor of a network namespace to enter; -1: this process's.
  int in = -1;     // Descriptors for 0, 1 and 2; -1: inherited.
  int out = -1;
  int err = -1;
};

// "exited with code 3", or "was killed by SIGKILL" for 128 + SIGKILL.
std::string describe_exit(int code);

class ChildProcesses {
 public:
  // Gets the exit code as a shell counts it: 128 + the signal for a process that was killed.
  using OnExit = std::function<void(int exit_code)>;

  // Receives SIGCHLD, which must be blocked in all threads: see block_launcher_signals().
  explicit ChildProcesses(Loop& loop);
  ~ChildProcesses() { end_all(); }

  // Starts a process in a process group of its own. Calls `on_exit` once, on the loop's thread.
  // NOT_FOUND where the program cannot be executed.
  Result<pid_t> spawn(const SpawnOptions& options, OnExit on_exit);

  // Sends a signal to the process's group; does nothing once the process has ended.
  void signal(pid_t pid, int signal);
  bool is_running(pid_t pid) const { return children_.contains(pid); }

  // Kills all descendants of this process and reaps them, without calling their `on_exit`.
  void end_all();

 private:
  void reap();

  std::map<pid_t, OnExit> children_;
  SignalWatch watch_;
};

// Blocks SIGINT, SIGTERM, SIGHUP and SIGCHLD for this thread and those it starts. Call it first
// thing in main(), before any thread exists. Children start with no signal blocked.
void block_launcher_signals();

}  // namespace tutti

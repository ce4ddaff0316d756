// Child processes that cannot outlive this one: started, watched and ended by one ChildProcesses.
//
// The nursery is the only place that forks and reaps. Children die with the thread that spawned
// them (PR_SET_PDEATHSIG), and orphans of children come back to this process
// (PR_SET_CHILD_SUBREAPER), so that end_all() leaves nothing behind, whatever they started.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/base/status.h"

namespace tutti {

// NAME=VALUE lines for a child: this process's environment, then what is set here.
class Environment {
 public:
  Environment();
  Environment& set(const std::string& name, const std::string& value);
  std::string get(const std::string& name) const;  // "" where unset.
  std::vector<std::string> lines() const;

 private:
  std::map<std::string, std::string> values_;
};

struct SpawnOptions {
  std::vector<std::string> command;  // Looked up in PATH as a shell does.
  Environment environment;
  int network = -1;  // Descriptor of a network namespace to enter; -1: this one's.
  int in = -1;       // Descriptors for 0, 1 and 2; -1: inherited.
  int out = -1;
  int err = -1;
};

// How a process ended, as a shell counts: its exit code, or 128 + the signal that killed it.
int exit_code_of(int wait_status);
std::string describe_exit(int code);  // "exited with code 3", "was killed by SIGKILL".

class ChildProcesses {
 public:
  using Ended = std::function<void(int exit_code)>;

  // Takes SIGCHLD, which main() has blocked in all threads.
  explicit ChildProcesses(Loop& loop);
  ~ChildProcesses();  // end_all().

  // Starts a process in a process group of its own; `ended` is called once, on the loop's thread.
  // NOT_FOUND or another Status where the program cannot be executed.
  Result<pid_t> spawn(const SpawnOptions& options, Ended ended);

  // To the process group; a process that has ended is left alone.
  void signal(pid_t pid, int signal);
  bool runs(pid_t pid) const { return children_.contains(pid); }

  // Kills every descendant and reaps it. Their `ended` is not called.
  void end_all();

 private:
  void reap();

  Loop& loop_;
  Fd signals_;
  std::map<pid_t, Ended> children_;
};

// Blocks SIGINT, SIGTERM, SIGHUP and SIGCHLD for this thread and those it starts: call first thing
// in main(), before any thread exists. Children start with nothing blocked.
void block_signals();

}  // namespace tutti

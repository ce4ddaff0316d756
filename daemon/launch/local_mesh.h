// An ephemeral mesh on this machine: one agent per host, each with its own socket, directory, port
// and, on demand, network namespace. Host a coordinates. All files are in one temporary directory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "daemon/launch/child_processes.h"
#include "daemon/launch/first_failure.h"
#include "daemon/launch/folder_keeper.h"
#include "daemon/launch/host_network.h"

namespace tutti {

struct LocalMeshOptions {
  int hosts = 1;
  bool netns = false;
  uint64_t rate_bits_per_s = 0;          // 0: no limit. Needs netns.
  std::string log_dir;                   // Of the daemons' logs; empty: the temporary directory.
  Millis worker_idle{0};                 // How long workers outlive their trainers; 0: the default.
  std::vector<std::string> agent_flags;  // More flags of tuttid, for all hosts.
};

class LocalMesh {
 public:
  struct Host {
    std::string name;
    std::string socket;   // The agent's Unix socket, for trainers.
    std::string control;  // The agent's control plane, host:port.
    std::string address;  // Where people and tools ask it: its Unix socket, "unix:PATH".
    std::string log;      // Path of the log of its agent and workers.
    int netns = -1;       // Descriptor of its network namespace; -1: this process's.
    pid_t agent = 0;
  };

  // Starts the agents and waits until all are ready. Call it before this process has other threads
  // (see host_network.h). Returns CANCELLED soon after `interrupted` returns true.
  static Result<std::unique_ptr<LocalMesh>> start(Loop& loop, ChildProcesses& children,
                                                  const LocalMeshOptions& options,
                                                  const std::function<bool()>& interrupted);
  ~LocalMesh();  // Stops it and removes the directory.

  const std::vector<Host>& hosts() const { return hosts_; }
  // Asks the agents to stop with their jobs, waits a few seconds, then kills all processes left.
  void stop();
  // Asks rank 0's host for its record of a job with `world_size` ranks; only `joined` is set where
  // it does not answer. Blocks for a second at most.
  JobRecord record_of(const std::string& job, size_t world_size) const;
  // host:port at which rank 0 may listen for the others: MASTER_ADDR and MASTER_PORT.
  const std::string& rendezvous() const { return rendezvous_; }
  // The shell command that shows the mesh's status, from outside.
  std::string status_command() const;
  // The last lines of each host's log, under the host's name; hosts without any are left out.
  std::string log_tails(bool warnings_only = false) const;

 private:
  LocalMesh(Loop& loop, ChildProcesses& children) : loop_(loop), children_(children) {}
  Status prepare(const LocalMeshOptions& options);
  Status write_token() const;
  Status start_agent(Host& host, const std::function<bool()>& interrupted);
  Status try_start_agent(Host& host, const std::function<bool()>& interrupted);
  SpawnOptions agent_options(const Host& host, int log) const;
  std::filesystem::path token_file() const { return directory_ / kTokenFile; }
  void on_agent_ended(const std::string& name, int code);

  Loop& loop_;
  ChildProcesses& children_;
  std::filesystem::path directory_;
  FolderKeeper keeper_;  // Removes it where this process is killed.
  Millis worker_idle_{0};
  std::vector<std::string> agent_flags_;
  std::vector<HostNetwork> networks_;
  std::vector<Host> hosts_;
  std::string rendezvous_;
  bool starting_ = true;  // Failures are then returned by start().
  bool stopping_ = false;
};

// The directory of the running program, which also holds tuttid and tutti-worker.
std::filesystem::path program_directory();

}  // namespace tutti

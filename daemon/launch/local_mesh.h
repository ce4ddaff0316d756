// An ephemeral mesh on this machine: one agent a host, each with its own socket, directory, port
// and, on demand, network. Host a coordinates. Everything is in one temporary directory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "daemon/launch/first_failure.h"
#include "daemon/launch/network.h"
#include "daemon/launch/process.h"

namespace tutti {

struct LocalMeshOptions {
  int hosts = 1;
  bool netns = false;
  uint64_t rate_bits_per_s = 0;  // 0: no limit. Needs netns.
  std::string log_dir;           // Empty: logs are kept in the temporary directory.
  Millis worker_idle{0};         // How long workers outlive their trainers; 0: as settings say.
};

class LocalMesh {
 public:
  struct Host {
    std::string name;
    std::string socket;   // Of its agent, for trainers.
    std::string address;  // Of its agent's control plane, host:port.
    std::string log;      // Where its agent and workers write.
    int network = -1;     // Descriptor of its namespace; -1: this one's.
    pid_t agent = 0;
  };

  // Must be made before this process has other threads (see network.h). `interrupted` is asked
  // between steps; true ends the start with CANCELLED.
  static Result<std::unique_ptr<LocalMesh>> start(Loop& loop, ChildProcesses& nursery,
                                                  const LocalMeshOptions& options,
                                                  const std::function<bool()>& interrupted);
  ~LocalMesh();  // stop(), and removes the directory.

  const std::vector<Host>& hosts() const { return hosts_; }
  // Asks the agents to stop with their jobs, waits a few seconds, then kills what is left.
  void stop();
  // What rank 0's host has recorded of a job of so many ranks; `joined` where it does not answer.
  // Blocks for a second at most.
  JobRecord record_of(const std::string& job, size_t world_size) const;
  // Where rank 0 may listen for the others (MASTER_ADDR, MASTER_PORT): host:port.
  const std::string& rendezvous() const { return rendezvous_; }
  // How one asks from outside what runs here: a line for the shell.
  std::string status_command() const;
  // The last lines of every host's log that has any, under its name.
  std::string log_tails() const;

 private:
  LocalMesh(Loop& loop, ChildProcesses& nursery) : loop_(loop), children_(nursery) {}
  Status prepare(const LocalMeshOptions& options);
  Status start_agent(Host& host, const std::function<bool()>& interrupted);
  Status try_agent(Host& host, const std::function<bool()>& interrupted);
  SpawnOptions agent_options(const Host& host, int log) const;
  void on_agent_ended(const std::string& name, int code);

  Loop& loop_;
  ChildProcesses& children_;
  std::filesystem::path directory_;
  Millis worker_idle_{0};
  std::vector<HostNetwork> networks_;
  std::vector<Host> hosts_;
  std::string rendezvous_;
  bool starting_ = true;  // What goes wrong then is told by start().
  bool stopping_ = false;
};

// The folder of the running program, where tuttid and tutti-worker lie too.
std::filesystem::path program_directory();

}  // namespace tutti

// What is wrong with a node, and what to do about it: judged from a view of the machine and its
// agent, which daemon/doctor takes. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/settings.h"
#include "daemon/base/status.h"
#include "daemon/diagnosis/grade.h"
#include "daemon/nvml/nvml.h"
#include "proto/mesh.pb.h"

namespace tutti {

// ---- The view ----

struct FileView {
  std::string path;
  bool exists = false;
  uint32_t uid = 0;
  uint32_t mode = 0;  // Of permissions alone.
};

// The way to another agent.
struct PathView {
  std::string host;
  std::string address;    // Of its control plane, host:port.
  std::string interface;  // That leads there; empty: none does.
  int interface_mtu = 0;  // Bytes.
  int path_mtu = 0;       // What Linux knows of the path after a packet of the full size was sent.
  bool answered = false;  // The other side got that packet.
};

// For the agent where it runs on this host, else for this process.
struct LimitsView {
  uint32_t pid = 0;
  bool of_agent = false;
  uint64_t locked_bytes = UINT64_MAX;  // RLIMIT_MEMLOCK, as the next one the hard limit.
  uint64_t descriptors = UINT64_MAX;   // RLIMIT_NOFILE.
  uint64_t cgroup_bytes_max = 0;       // 0: no limit.
  uint64_t cgroup_bytes = 0;           // In use.
};

// What the host's certificate says. Times are in seconds since 1970.
struct CertificateView {
  std::string names;    // "DNS b, IP 10.0.0.1, CN b".
  bool fits = false;    // It names this host.
  int64_t renewal = 0;  // By when it should be renewed.
  int64_t expires = 0;
};

struct NodeView {
  // What tuttid would be configured with.
  Settings settings;
  Status settings_read;
  std::string config;  // Path of the settings file.
  bool config_exists = false;
  Status credentials_read;
  bool has_agent_token = false;
  bool has_tokens = false;  // Of any role.
  uint32_t uid = 0;         // Of this process.
  std::string version;      // Of this tool.
  uint32_t protocol = 0;    // The same, kProtocolVersion of proto/segment.h; 0: not known.
  std::string hostname;     // The agent's name of this host.

  // Its agent, and the mesh as that reports it.
  std::string address;  // That was asked.
  Status agent;         // Of the call that asks it for itself.
  v1::AgentReport own;  // Empty where it does not answer.
  Status mesh;          // Of the call that asks it for all agents.
  v1::StatusReply agents;
  int64_t asked_ms = 0;  // Before and after that call, since 1970.
  int64_t answered_ms = 0;
  std::optional<uint32_t> agent_uid;  // Where it runs on this machine.

  // The network.
  Status coordinator;        // Of a connection to it; OK where there is none to connect to.
  std::vector<Status> etcd;  // Of a connection to each member.
  Status etcd_files;         // Whether the files of its certificates and its password are read.
  Status metrics;            // Whether `metrics_listen` can be bound; OK where the agent has it.
  bool metrics_wildcard = false;  // `metrics_listen` is every address of this machine.
  Status addresses;               // Whether others reach the addresses in the settings.
  Status listen;                  // Whether `listen` can be bound; OK where the agent has it.
  int data_ports = 0;             // How many of the setting there are,
  int data_ports_taken = 0;
  std::string congestion_available;  // "cubic bbr".
  std::string congestion_allowed;
  std::vector<PathView> paths;

  // The machine.
  LimitsView limits;
  uint64_t available_bytes = 0;
  int overcommit = 0;  // vm.overcommit_memory.
  std::string kernel;  // "6.1.0".
  Status pidfd;
  Status sealed_memory;
  FileView run_dir;
  Status run_dir_space;  // RESOURCE_EXHAUSTED: it is full. Else: it cannot be written.
  Status worker_binary;  // Whether it is there and can be executed; OK as well: not known where.
  FileView socket_dir;
  std::optional<Result<CertificateView>> certificates;  // With tls = require.
  int64_t now = 0;                                      // Seconds since 1970.
  Status nvml;
  bool has_nvidia_driver = false;
  std::vector<GpuInfo> gpus;
};

// ---- The judgement ----

struct Check {
  std::string subject;  // One word.
  Grade grade = Grade::ok;
  std::string finding;  // A sentence.
  std::string remedy;   // What to do; empty where it is OK.
};
std::vector<Check> examine(const NodeView& node);
bool any_failed(const std::vector<Check>& checks);

// A line for each check, and its remedy below it.
std::string doctor_text(const std::vector<Check>& checks);
// {"checks":[{"subject":...,"grade":"OK","finding":...,"remedy":...}]} on one line.
std::string doctor_json(const std::vector<Check>& checks);

}  // namespace tutti

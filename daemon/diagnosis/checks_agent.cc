// Checks of the configuration, the agent and the mesh.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "daemon/diagnosis/checks.h"
#include "daemon/diagnosis/describe.h"

namespace tutti {
namespace {

constexpr int64_t kClockWarnMs = 500;
constexpr int64_t kClockFailMs = 60'000;
constexpr int64_t kDaySeconds = 86'400;
constexpr int64_t kExpiresSoonDays = 14;

std::string user(uint32_t uid) { return "user " + std::to_string(uid); }

// How far a clock is from the time in which it was read; 0: not at all.
int64_t offset_of(const v1::AgentReport& agent, const NodeView& node) {
  if (agent.time_ms() < node.asked_ms) return agent.time_ms() - node.asked_ms;
  return std::max<int64_t>(agent.time_ms() - node.answered_ms, 0);
}

std::string octal(uint32_t mode) {
  char text[16];
  (void)std::snprintf(text, sizeof text, "%04o", mode);
  return text;
}

// "connection refused" in "unreachable for 12 s: connection refused".
std::string reason_in(const std::string& state) {
  const size_t colon = state.find(": ");
  return colon == std::string::npos ? state : state.substr(colon + 2);
}

// "b speaks protocol version 9, c version 7"; empty: all speak this tool's.
std::string other_protocols(const NodeView& node) {
  std::string others;
  const auto add = [&](const v1::AgentReport& agent) {
    if (agent.protocol() == 0 || node.protocol == 0 || agent.protocol() == node.protocol) return;
    others += (others.empty() ? "" : ", ") + agent.host() +
              (others.empty() ? " speaks protocol version " : " version ") +
              std::to_string(agent.protocol());
  };
  if (node.agent.ok()) add(node.own);
  for (const v1::AgentReport& agent : node.agents.agents())
    if (agent.host() != node.own.host() && !is_gone(agent)) add(agent);
  return others;
}

}  // namespace

std::string why_unregistered(const NodeView& node) {
  if (!node.agent.ok() || node.own.coordinator()) return {};
  const std::string& state = node.own.coordinator_state();
  if (!state.empty() && state != "connected") return reason_in(state);
  if (!node.own.etcd_state().empty() && node.own.coordinator_address().empty())
    return "nobody coordinates, so that no job can be joined; see the check etcd";
  return {};
}

Check failure_of(std::string subject, const std::string& text, const std::string& else_remedy) {
  const size_t end = text.rfind("; ");
  if (end == std::string::npos) return failure(std::move(subject), text, else_remedy);
  return failure(std::move(subject), text.substr(0, end), text.substr(end + 2));
}

Check check_settings(const NodeView& node) {
  constexpr const char* kSubject = "settings";
  if (!node.settings_read.ok())
    return failure(kSubject, node.settings_read.message(),
                   "fix that place; tuttid --help-all lists all settings and their ranges");
  if (!node.config_exists) return good(kSubject, "no file " + node.config + ": defaults are used");
  return good(kSubject, node.config + " is valid");
}

Check check_tokens(const NodeView& node) {
  constexpr const char* kSubject = "tokens";
  const bool several =
      !node.settings.coordinator.empty() && !is_loopback(node.settings.coordinator);
  if (may_not_read(node, node.credentials_read))
    return warning(kSubject, node.credentials_read.message(), "run tutti doctor as root");
  if (!node.credentials_read.ok())
    return failure(kSubject, node.credentials_read.message(),
                   "fix token_file, see SECURITY.md; tuttid does not start with it");
  if (node.settings.trust_network == "yes")
    return warning(kSubject, "trust_network = yes: every caller of the control plane is believed",
                   "set token_file on all nodes, and trust_network = no");
  if (!node.settings.etcd.empty() && !node.has_agent_token)
    return failure(kSubject, "agents find each other through etcd, and there is no token for them",
                   "put the same token with role=agent in the token_file of all nodes");
  if (several && !node.has_agent_token)
    return failure(kSubject, "the coordinator is another host, and there is no token for agents",
                   "put the same token with role=agent in the token_file of all nodes");
  return good(kSubject, node.has_agent_token ? "there is a token for agents"
                                             : "no token for agents: this node is a mesh alone");
}

Check check_agent(const NodeView& node) {
  constexpr const char* kSubject = "agent";
  if (node.agent.code() == Code::unavailable)
    return failure(kSubject, node.agent.message(),
                   "start it: systemctl start tuttid; why it ended: journalctl -u tuttid");
  if (!node.agent.ok())
    return failure_of(kSubject, node.agent.message(), "see its log: journalctl -u tuttid");
  const std::string name =
      "tuttid of host " + node.own.host() + " (pid " + std::to_string(node.own.pid()) + ")";
  if (grade_of(node.own) == Grade::ok) return good(kSubject, name + " serves");
  if (node.own.state() == "draining")
    return warning(kSubject, name + " refuses new joins: it is draining", "tutti drain --undo");
  return warning(kSubject, name + " is " + node.own.state(), "see its log: journalctl -u tuttid");
}

Check check_versions(const NodeView& node) {
  constexpr const char* kSubject = "versions";
  std::map<std::string, std::string> hosts;  // By version.
  const auto add = [&](const v1::AgentReport& agent) {
    std::string& list = hosts[agent.version()];
    list += (list.empty() ? "" : ", ") + agent.host();
  };
  if (node.agent.ok()) add(node.own);
  for (const v1::AgentReport& agent : node.agents.agents())
    if (!agent.version().empty() && agent.host() != node.own.host()) add(agent);
  const std::string remedy =
      "install one release on all nodes, then restart tuttid: jobs go on meanwhile";
  if (const std::string protocols = other_protocols(node); !protocols.empty())
    return failure(kSubject,
                   protocols + ", this tool version " + std::to_string(node.protocol) +
                       ": joins across them are refused",
                   remedy);
  std::string others;
  for (const auto& [version, list] : hosts)
    if (version != node.version) others += (others.empty() ? "" : "; ") + version + " on " + list;
  if (hosts.empty()) return good(kSubject, "this tool is " + node.version);
  if (others.empty()) return good(kSubject, "all are " + node.version);
  return warning(kSubject, "this tool is " + node.version + ", tuttid is " + others, remedy);
}

Check check_mesh(const NodeView& node) {
  constexpr const char* kSubject = "mesh";
  if (!node.agent.ok()) return warning(kSubject, "unknown: no agent answers", "start tuttid first");
  if (!node.mesh.ok())
    return failure(kSubject, node.mesh.message(),
                   "see whether the coordinator runs, and whether this node reaches it");
  if (!why_unregistered(node).empty())
    return warning(kSubject, "only this node is known: its agent is not registered",
                   "fix what the check coordinator says");
  std::string lost;
  for (const v1::AgentReport& agent : node.agents.agents())
    if (grade_of(agent) == Grade::fail)
      lost += (lost.empty() ? "" : "; ") + name_of(agent.host(), agent.address()) + " " +
              describe_state(agent);
  if (!lost.empty())
    return failure(kSubject, lost, "run tutti doctor there; let firewalls pass port 7601");
  const auto answer = std::ranges::count_if(node.agents.agents(),
                                            [](const auto& agent) { return !is_gone(agent); });
  if (answer <= 1) return good(kSubject, "this node's agent is the only one");
  return good(kSubject, "agents that answer: " + std::to_string(answer));
}

Check check_clocks(const NodeView& node) {
  constexpr const char* kSubject = "clocks";
  int64_t largest = 0;
  std::string who;
  for (const v1::AgentReport& agent : node.agents.agents()) {
    const int64_t offset = agent.time_ms() == 0 ? 0 : offset_of(agent, node);
    if (std::abs(offset) <= std::abs(largest)) continue;
    largest = offset;
    who = agent.host();
  }
  const int64_t apart = std::abs(largest);
  if (node.agents.agents_size() <= 1) return good(kSubject, "there is no other agent's to compare");
  if (apart < kClockWarnMs)
    return good(kSubject, "those of all agents agree with this one to " +
                              std::to_string(kClockWarnMs) + " ms");
  const std::string finding = "the clock of " + who + " is " + std::to_string(apart) + " ms " +
                              (largest > 0 ? "ahead of" : "behind") + " this one";
  const std::string remedy = "set the clocks by NTP: timedatectl set-ntp true";
  return apart < kClockFailMs ? warning(kSubject, finding, remedy)
                              : failure(kSubject, finding, remedy);
}

Check check_directories(const NodeView& node) {
  constexpr const char* kSubject = "directories";
  const FileView& run = node.run_dir;
  if (!run.exists) return good(kSubject, "tuttid will make " + run.path);
  const bool owner_fits = run.uid == 0 || run.uid == node.agent_uid.value_or(node.uid);
  if (!owner_fits)
    return failure(kSubject, run.path + " belongs to " + user(run.uid),
                   "chown root " + run.path + ", or choose another run_dir");
  if ((run.mode & (S_IWGRP | S_IWOTH)) != 0)
    return failure(kSubject, "others may write to " + run.path + " (mode " + octal(run.mode) + ")",
                   "chmod go-w " + run.path);
  const FileView& sockets = node.socket_dir;
  if (sockets.exists && (sockets.mode & S_IWOTH) != 0 && (sockets.mode & S_ISVTX) == 0)
    return failure(
        kSubject,
        "anybody may replace the socket in " + sockets.path + " (mode " + octal(sockets.mode) + ")",
        "chmod o-w " + sockets.path + ", or choose another socket");
  if (sockets.exists && (sockets.mode & S_IXOTH) == 0)
    return warning(kSubject,
                   "other users cannot reach the socket in " + sockets.path + " (mode " +
                       octal(sockets.mode) + ")",
                   "chmod o+x " + sockets.path + ", if they are to run jobs");
  if (node.run_dir_space.code() == Code::resource_exhausted)
    return failure(kSubject, node.run_dir_space.message(),
                   "free space there, or choose another run_dir");
  if (!node.run_dir_space.ok())
    return failure(kSubject, node.run_dir_space.message(),
                   "make it writable; under systemd name it in ReadWritePaths= of the unit");
  return good(kSubject, run.path + " belongs to " + user(run.uid) + ", and to nobody else");
}

Check check_worker(const NodeView& node) {
  constexpr const char* kSubject = "worker";
  if (!node.worker_binary.ok())
    return failure(kSubject, node.worker_binary.message() + ": every join fails",
                   "install tutti-worker there, or fix the setting worker_binary");
  const std::string& path = node.settings.worker_binary;
  return good(kSubject, path.empty() ? "none is set: it is the one beside tuttid"
                                     : path + " can be executed");
}

Check check_certificates(const NodeView& node) {
  constexpr const char* kSubject = "certificates";
  if (!node.certificates) return good(kSubject, "tls = off: none are needed");
  const Result<CertificateView>& read = *node.certificates;
  if (may_not_read(node, read.status()))
    return warning(kSubject, read.status().message(), "run tutti doctor as root");
  if (!read.ok())
    return failure(kSubject, read.status().message(), "renew the files: see docs/tls.md");
  const int64_t days = (read->expires - node.now) / kDaySeconds;
  if (!read->fits)
    return failure(kSubject, "tls.crt names " + read->names + ", not this host, " + node.hostname,
                   "issue one with the DNS name " + node.hostname + ", or set host");
  const std::string left = "tls.crt expires in " + std::to_string(days) + " days";
  if (node.now >= read->renewal || days < kExpiresSoonDays)
    return warning(kSubject, left, "renew it; tuttid reads the new files by itself");
  return good(kSubject, left + ", and names " + read->names);
}

}  // namespace tutti

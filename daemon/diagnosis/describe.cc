#include "daemon/diagnosis/describe.h"

#include "daemon/diagnosis/checks.h"
#include "daemon/diagnosis/grade.h"

namespace tutti {

std::string describe_state(const v1::AgentReport& agent) {
  if (agent.lost()) return "was " + agent.state() + ": its agent ended or cannot be reached";
  if (refuses(agent)) return agent.state();
  return (is_gone(agent) ? "was " : "is ") + agent.state();
}

bool takes_anothers_place(const v1::AgentReport& agent) {
  const std::string name = host_of(agent.coordinator_setting());
  const bool is_name = name.find_first_not_of("0123456789.") != std::string::npos &&
                       name.find(':') == std::string::npos && !is_loopback(name + ":0");
  const auto label = [](const std::string& host) { return host.substr(0, host.find('.')); };
  return agent.coordinator() && is_name && label(name) != label(agent.host());
}

std::string describe_lone(const v1::StatusReply& status) {
  const v1::AgentReport* only = nullptr;
  for (const v1::AgentReport& agent : status.agents()) {
    if (is_gone(agent)) continue;
    if (only != nullptr) return {};
    only = &agent;
  }
  if (only == nullptr || !only->coordinator() || is_loopback(only->address())) return {};
  const std::string& setting = only->coordinator_setting();
  const std::string text = "no other agent is registered with host " + only->host();
  if (setting.empty())
    return text + ", which coordinates; for ranks elsewhere see tutti doctor on their hosts";
  return text + ", which coordinates as " + setting +
         " leads to it; for ranks elsewhere see that getent hosts " + host_of(setting) +
         " says the same on their hosts";
}

std::string describe_ranks(const std::vector<uint32_t>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t first = 0, next = 0; first < ranks.size(); first = next) {
    for (next = first + 1; next < ranks.size() && ranks[next] == ranks[next - 1] + 1;) ++next;
    out += (first == 0 ? "" : ", ") + std::to_string(ranks[first]);
    if (next - first > 1) out += (next - first > 2 ? "-" : ", ") + std::to_string(ranks[next - 1]);
  }
  return out;
}

std::string describe_seconds(double seconds) {
  if (seconds < 1) return std::to_string(static_cast<int64_t>(seconds * 1000)) + " ms";
  if (seconds < 120) return std::to_string(static_cast<int64_t>(seconds)) + " s";
  if (seconds < 7200) return std::to_string(static_cast<int64_t>(seconds / 60)) + " min";
  return std::to_string(static_cast<int64_t>(seconds / 3600)) + " h";
}

}  // namespace tutti

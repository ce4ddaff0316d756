// Checks of ports, addresses and paths.
#include <algorithm>

#include "daemon/base/text.h"
#include "daemon/diagnosis/checks.h"
#include "daemon/diagnosis/describe.h"

namespace tutti {
namespace {

bool has_word(const std::string& words, const std::string& word) {
  const std::vector<std::string> list = split(words, ' ');
  return std::ranges::find(list, word) != list.end();
}

}  // namespace

std::string host_of(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

std::string name_of(const std::string& host, const std::string& address) {
  return host.empty() ? address : host + " (" + address + ")";
}

bool is_loopback(const std::string& address) {
  const std::string host = host_of(address);
  return host.starts_with("127.") || host == "localhost" || host == "::1";
}

Check check_listen(const NodeView& node) {
  constexpr const char* kSubject = "listen";
  const std::string& listen = node.settings.listen;
  if (!node.addresses.ok())
    return failure(kSubject, node.addresses.message(),
                   "set it to this node's address in that network, or listen to 0.0.0.0:7601");
  if (!node.listen.ok())
    return failure(kSubject, node.listen.message(),
                   "end what uses the port (ss -ltnp), or choose another with listen");
  if (node.agent.ok()) return good(kSubject, "the control plane is " + node.own.address());
  return good(kSubject, listen + " is free");
}

Check check_coordinator(const NodeView& node) {
  constexpr const char* kSubject = "coordinator";
  const std::string& coordinator = node.settings.coordinator;
  const std::string remedy =
      "start tuttid there, let firewalls pass the port, or fix the setting coordinator";
  if (const std::string why = why_unregistered(node); !why.empty())
    return failure_of(kSubject, why, remedy);
  if (node.own.coordinator_state() == "connected")
    return good(kSubject, node.own.coordinator_address() + " has registered this node's agent");
  if (takes_anothers_place(node.own) && !describe_lone(node.agents).empty())
    return good(kSubject, "this node's agent coordinates itself, as " +
                              node.own.coordinator_setting() +
                              " leads to it, and no other agent is registered there");
  if (!node.settings.etcd.empty()) return good(kSubject, "agents elect it through etcd");
  if (coordinator.empty()) return good(kSubject, "none is set: this node's agent coordinates");
  if (node.coordinator.ok()) return good(kSubject, coordinator + " is reached");
  return failure(kSubject, node.coordinator.message(), remedy);
}

Check check_etcd(const NodeView& node) {
  constexpr const char* kSubject = "etcd";
  const Settings& settings = node.settings;
  if (settings.etcd.empty()) return good(kSubject, "none is set");
  if (!settings.coordinator.empty())
    return failure(kSubject, "etcd and coordinator are both set; tuttid does not start with both",
                   "remove coordinator: with etcd the agents elect it");
  if (may_not_read(node, node.etcd_files))
    return warning(kSubject, node.etcd_files.message(), "run tutti doctor as root");
  if (!node.etcd_files.ok())
    return failure(kSubject, node.etcd_files.message(), "fix etcd_tls_dir or etcd_password_file");
  const std::vector<std::string> members = split(settings.etcd, ',');
  const bool is_guarded = !settings.etcd_tls_dir.empty() || settings.trust_network == "yes" ||
                          settings.tls == "require" || std::ranges::all_of(members, is_loopback);
  if (!is_guarded)
    return failure(kSubject, "the network between this node and etcd is believed: there is no TLS",
                   "set etcd_tls_dir, or trust_network = yes where nobody else is on the network");
  const std::string& state = node.own.etcd_state();
  if (!state.empty() && state != "connected")
    return failure(kSubject, "the agent says: " + state,
                   "see that more than half of the members run and reach each other: "
                   "etcdctl endpoint health --cluster");
  std::string lost;
  size_t missing = 0;
  for (const Status& member : node.etcd) {
    if (member.ok()) continue;
    ++missing;
    lost += (lost.empty() ? "" : "; ") + member.message();
  }
  if (missing == 0) return good(kSubject, "members that are reached: " + settings.etcd);
  const std::string remedy = "start etcd there, let firewalls pass the port, or fix the setting";
  return 2 * missing < node.etcd.size() ? warning(kSubject, lost, remedy)
                                        : failure(kSubject, lost, remedy);
}

Check check_metrics(const NodeView& node) {
  constexpr const char* kSubject = "metrics";
  const Settings& settings = node.settings;
  const std::string& listen = settings.metrics_listen;
  if (listen.empty()) return good(kSubject, "metrics_listen is not set: nothing is served");
  const bool is_guarded = node.has_tokens || !node.credentials_read.ok() ||
                          settings.trust_network == "yes" || settings.tls == "require" ||
                          settings.metrics_public == "yes";
  if (node.metrics_wildcard && !is_guarded)
    return failure(kSubject, listen + " is open to every network, and there are no tokens",
                   "set token_file, or metrics_public = yes, or listen on 127.0.0.1");
  if (!node.metrics.ok())
    return failure(kSubject, node.metrics.message(),
                   "end what uses the port (ss -ltnp), or choose another with metrics_listen");
  if (!node.agent.ok()) return good(kSubject, listen + " is free");
  if (node.own.metrics_address().empty())
    return warning(kSubject, "tuttid serves none: it started before metrics_listen was set",
                   "systemctl restart tuttid: jobs go on meanwhile");
  return good(kSubject, "they are at " + node.own.metrics_address());
}

Check check_data_ports(const NodeView& node) {
  constexpr const char* kSubject = "data_ports";
  if (node.data_ports == 0) return good(kSubject, "the kernel chooses ports of data links");
  const int free = node.data_ports - node.data_ports_taken;
  const std::string finding = std::to_string(free) + " of " + std::to_string(node.data_ports) +
                              " ports in " + node.settings.data_ports + " are free";
  const std::string remedy = "give data_ports more; each job takes one on each of its nodes";
  if (free == 0) return failure(kSubject, finding, remedy);
  return 5 * free < node.data_ports ? warning(kSubject, finding, remedy) : good(kSubject, finding);
}

Check check_congestion(const NodeView& node) {
  constexpr const char* kSubject = "congestion";
  const std::string& wanted = node.settings.tcp_congestion;
  if (wanted.empty()) return good(kSubject, "links take the kernel's default");
  if (wanted == Settings().tcp_congestion && !has_word(node.congestion_allowed, wanted))
    return good(kSubject, "users' links take the kernel's default: it allows them only " +
                              node.congestion_allowed);
  if (!has_word(node.congestion_available, wanted))
    return warning(kSubject,
                   "the kernel lacks " + wanted + " (tcp_congestion), and has " +
                       node.congestion_available + ": links take its default",
                   "modprobe tcp_" + wanted);
  if (!has_word(node.congestion_allowed, wanted))
    return warning(kSubject,
                   "workers of users may not choose " + wanted + ", only " +
                       node.congestion_allowed + ": their links take the default",
                   "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"" +
                       node.congestion_allowed + " " + wanted + "\"");
  return good(kSubject, "links may take " + wanted);
}

Check check_mtu(const NodeView& node) {
  constexpr const char* kSubject = "mtu";
  if (node.paths.empty()) return good(kSubject, "there is no other agent to send to");
  std::string sizes;
  for (const PathView& path : node.paths) {
    const std::string to = name_of(path.host, path.address);
    if (path.interface.empty())
      return failure(kSubject, "there is no route to " + to,
                     "ip route get " + host_of(path.address));
    if (path.path_mtu < path.interface_mtu)
      return warning(kSubject,
                     "packets to " + to + " may have " + std::to_string(path.path_mtu) +
                         " bytes, but " + path.interface + " sends " +
                         std::to_string(path.interface_mtu),
                     "give all interfaces and switches on the way the same MTU");
    const std::string size = path.interface + " " + std::to_string(path.interface_mtu) + " bytes";
    if (sizes.find(size) == std::string::npos) sizes += (sizes.empty() ? "" : ", ") + size;
  }
  const auto answered = std::ranges::count(node.paths, true, &PathView::answered);
  return good(kSubject, sizes + "; packets of that size reach " + std::to_string(answered) +
                            " of " + std::to_string(node.paths.size()) +
                            " other agents for certain");
}

}  // namespace tutti

// The checks of examine(), by subject. Pure.
#pragma once

#include "daemon/diagnosis/node_diagnosis.h"

namespace tutti {

inline Check good(std::string subject, std::string finding) {
  return {std::move(subject), Grade::ok, std::move(finding), {}};
}
inline Check warning(std::string subject, std::string finding, std::string remedy) {
  return {std::move(subject), Grade::warn, std::move(finding), std::move(remedy)};
}
inline Check failure(std::string subject, std::string finding, std::string remedy) {
  return {std::move(subject), Grade::fail, std::move(finding), std::move(remedy)};
}

// Who may not read a file cannot say what is wrong with it.
inline bool may_not_read(const NodeView& node, const Status& status) {
  return node.uid != 0 && status.message().find("Permission denied") != std::string::npos;
}

// Why the agent is not registered at a coordinator, as it says: "the coordinator 10.0.0.7:7601
// refuses this agent: wrong token; give both the same token_file". Empty: it is, or coordinates.
std::string why_unregistered(const NodeView& node);
// A failure of which the agent's text says the remedy behind its last semicolon.
Check failure_of(std::string subject, const std::string& text, const std::string& else_remedy);

std::string host_of(const std::string& address);  // Without port and brackets.
// "b (10.0.0.2:7601)"; of a host whose name is not known the address alone.
std::string name_of(const std::string& host, const std::string& address);
// Whether only this machine reaches the host part of "host:port".
bool is_loopback(const std::string& address);

// Configuration, the agent and the mesh.
Check check_settings(const NodeView& node);
Check check_tokens(const NodeView& node);
Check check_agent(const NodeView& node);
Check check_versions(const NodeView& node);
Check check_mesh(const NodeView& node);
Check check_clocks(const NodeView& node);
Check check_directories(const NodeView& node);
Check check_worker(const NodeView& node);
Check check_certificates(const NodeView& node);

// The network.
Check check_listen(const NodeView& node);
Check check_coordinator(const NodeView& node);
Check check_etcd(const NodeView& node);
Check check_metrics(const NodeView& node);
Check check_data_ports(const NodeView& node);
Check check_congestion(const NodeView& node);
Check check_mtu(const NodeView& node);

// The machine.
Check check_kernel(const NodeView& node);
Check check_shared_memory(const NodeView& node);
Check check_memory(const NodeView& node);
Check check_overcommit(const NodeView& node);
Check check_locked_memory(const NodeView& node);
Check check_descriptors(const NodeView& node);
Check check_gpus(const NodeView& node);

}  // namespace tutti

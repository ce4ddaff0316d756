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

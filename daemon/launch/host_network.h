// Network namespaces for the hosts of an ephemeral mesh: one with an address of its own for each
// host, joined by a bridge in a further namespace.
//
// The namespaces have no names. They exist as long as a process runs in them or a descriptor refers
// to them, so the kernel removes them and their links however this process ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace tutti {

struct HostNetwork {
  Fd netns;             // For setns().
  std::string address;  // IPv4, reachable from every other host and from this process.
};

// Creates the namespaces, and moves the calling thread into that of the bridge: call it before any
// other thread exists. `rate_bits_per_s` limits each host's link in both directions; 0: no limit.
// PERMISSION_DENIED unless root; NOT_FOUND without iproute2.
Result<std::vector<HostNetwork>> create_networks(int hosts, uint64_t rate_bits_per_s);

}  // namespace tutti

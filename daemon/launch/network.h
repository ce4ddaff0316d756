// One network namespace and address a host, joined by a bridge in a further namespace: hosts that
// cannot reach each other but by the wire between them.
//
// The namespaces have no name: they live as long as a process or a descriptor of this one is in
// them, so the kernel removes them, and the links in them, however this process ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace tutti {

struct HostNetwork {
  Fd space;             // For setns().
  std::string address;  // IPv4, reachable from every other host and from this process.
};

// Moves the calling thread (and threads it starts later) into the bridge's namespace: call before
// any other thread exists. `rate_bits_per_s` limits each host's link in both directions; 0: no
// limit. PERMISSION_DENIED unless root; NOT_FOUND without iproute2.
Result<std::vector<HostNetwork>> make_networks(int hosts, uint64_t rate_bits_per_s);

}  // namespace tutti

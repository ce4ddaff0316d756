// Questions to the network. They block for at most the time given.
#pragma once

#include "daemon/base/port_range.h"
#include "daemon/doctor/doctor.h"

namespace tutti {

// Connects to "host:port" and hangs up. UNAVAILABLE says why not.
Status dial(const std::string& address, int timeout_ms);
// Whether a TCP server could listen there. OK as well where the address has port 0.
Status try_bind(const std::string& address);
// How many TCP ports of the range are taken on this machine.
int count_taken_ports(const PortRange& range);
// The way to the UDP port of `address`, on which nobody should listen, so that a packet of full
// size is answered by ICMP.
PathView look_at_path(const std::string& host, const std::string& address, int timeout_ms);

}  // namespace tutti

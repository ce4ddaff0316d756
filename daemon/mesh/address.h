// How addresses reach this machine.
#pragma once

#include <string>

#include "daemon/base/address.h"

namespace tutti {

// Returns the address at which others reach a server that listens on `listen`: `listen` itself, or
// for a wildcard this machine's address on the route to `toward` (host:port); if that is empty or
// has no address, on the route to the Internet.
Address reachable(const Address& listen, const std::string& toward);

// Whether all that `address` leads to is this machine's own loopback. False if it leads nowhere.
bool is_loopback(const Address& address);

// Whether dialling `target` reaches a server that listens on `listen` on this machine, and no other
// machine.
bool is_self(const Address& target, const Address& listen);

// INVALID_ARGUMENT: the setting is no address, or a name that leads to this machine and to others,
// each of which would take itself for the coordinator.
Status check_coordinator(const std::string& coordinator);

}  // namespace tutti

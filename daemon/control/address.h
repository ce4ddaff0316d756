// How addresses reach this machine.
#pragma once

#include <string>

#include "daemon/base/address.h"

namespace tutti {

// Checks the settings of these names before anything listens. INVALID_ARGUMENT: one is no address,
// or not one at which this machine is reached by a host elsewhere, where the coordinator or a
// member of etcd is one; or the coordinator is a name of this machine and of others. UNAVAILABLE:
// this machine has not that address, or a name has none (yet).
Status check_addresses(const std::string& listen, const std::string& data_address,
                       const std::string& coordinator, const std::string& etcd);

// Whether a server that listens on `host` is reached by every address of this machine.
bool is_wildcard(const std::string& host);

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

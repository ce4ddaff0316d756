// How addresses reach this machine.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/base/address.h"

namespace tutti {

// Looks each name up once, as a resolver that does not answer costs seconds. One thread.
class Names {
 public:
  // "host:0" as resolve() takes it.
  using LookUp = std::function<Result<std::vector<SocketAddress>>(const std::string&)>;
  Names() : Names([](const std::string& address) { return resolve(address); }) {}
  explicit Names(LookUp look_up) : look_up_(std::move(look_up)) {}
  // With port 0; empty: none.
  const std::vector<SocketAddress>& addresses_of(const std::string& host) const;

 private:
  const LookUp look_up_;
  mutable std::map<std::string, std::vector<SocketAddress>> found_;
};

// Checks the settings of these names before anything listens. INVALID_ARGUMENT: one is no address.
// FAILED_PRECONDITION: as names and interfaces are now, it is not one at which this machine is
// reached by a host elsewhere, where the coordinator or a member of etcd is one; or the coordinator
// is a name of this machine and of others. UNAVAILABLE: this machine has not that address, or a
// name has none (yet).
Status check_addresses(const std::string& listen, const std::string& data_address,
                       const std::string& coordinator, const std::string& etcd,
                       const Names& names = {});

// Whether a server that listens on `host` is reached by every address of this machine.
bool is_wildcard(const std::string& host, const Names& names = {});
// The same as far as the text tells: false for names.
bool is_wildcard_number(const std::string& host);

// Returns the address at which others reach a server that listens on `listen`: `listen` itself, or
// for a wildcard this machine's address on the route to `toward` (host:port); if that is empty or
// has no address, on the route to the Internet.
Address reachable(const Address& listen, const std::string& toward, const Names& names = {});

// Whether all that `address` leads to is this machine's own loopback. False if it leads nowhere.
bool is_loopback(const Address& address, const Names& names = {});

// Whether dialling `target` reaches a server that listens on `listen` on this machine, and no other
// machine.
bool is_self(const Address& target, const Address& listen, const Names& names = {});

// INVALID_ARGUMENT: the setting is no address. FAILED_PRECONDITION: it is a name that leads to this
// machine and to others, each of which would take itself for the coordinator.
Status check_coordinator(const std::string& coordinator, const Names& names = {});

}  // namespace tutti

// Parses addresses ("host:port", "[::1]:7601") and finds out how they reach this machine.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/status.h"

namespace tutti {

struct Address {
  std::string host;  // Without brackets.
  uint16_t port = 0;
  std::string to_string() const;
};

// Returns INVALID_ARGUMENT, naming the expected form, for anything else.
Result<Address> parse_address(const std::string& text);

// Returns the address at which others reach a server that listens on `listen`: `listen` itself, or
// for a wildcard this machine's address on the route to `toward` (host:port; empty: the Internet).
Address reachable(const Address& listen, const std::string& toward);

// Whether a server that listens on `host` is reached by every address of this machine.
bool is_wildcard(const std::string& host);

// Whether all that `address` leads to is this machine's own loopback. False if it leads nowhere.
bool is_loopback(const Address& address);

// Whether dialling `target` reaches a server that listens on `listen` on this machine.
bool is_self(const Address& target, const Address& listen);

}  // namespace tutti

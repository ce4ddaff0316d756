// Addresses as people write them: "host:port", "[::1]:7601".
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

// INVALID_ARGUMENT, with the form expected, for anything else.
Result<Address> parse_address(const std::string& text);

// The address others dial to reach what listens on `listen`: itself, unless that is a wildcard;
// then this machine's address on the way to `toward` (host:port; empty: to the outside).
Address reachable(const Address& listen, const std::string& toward);

// Whether dialling `target` reaches what listens on `listen` on this machine.
bool is_self(const Address& target, const Address& listen);

}  // namespace tutti

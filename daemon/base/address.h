// Addresses as people write them: "host:port", "[::1]:7601".
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/status.h"

namespace tutti {

struct Address {
  std::string host;  // A name or a number, without brackets.
  uint16_t port = 0;
  std::string to_string() const;
};

// Returns INVALID_ARGUMENT, naming the expected form, for anything else.
Result<Address> parse_address(const std::string& text);

}  // namespace tutti

// A range of TCP ports, as in settings: "7610-7700", or "7610" for one.
#pragma once

#include <cstdint>
#include <string_view>

#include "daemon/base/status.h"

namespace tutti {

// The last is part of it. 0 to 0: the kernel chooses.
struct PortRange {
  uint16_t first = 0;
  uint16_t last = 0;
  uint32_t count() const { return uint32_t{last} - first + 1; }
  bool operator==(const PortRange&) const = default;
};

// Empty text: the kernel chooses. INVALID_ARGUMENT says what is expected.
Result<PortRange> parse_port_range(std::string_view text);

}  // namespace tutti

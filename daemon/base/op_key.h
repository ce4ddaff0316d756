// The identity of an operation among all that a worker runs.
#pragma once

#include <compare>
#include <cstdint>

namespace tutti {

struct OpKey {
  uint32_t epoch = 0;
  uint32_t group = 0;
  uint64_t seq = 0;  // The operation's number among the calls of its group.
  auto operator<=>(const OpKey&) const = default;
};

}  // namespace tutti

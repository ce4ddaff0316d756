// Which operation: within an epoch, and among all that a worker runs.
#pragma once

#include <compare>
#include <cstdint>

namespace tutti {

// The operation of this number among the calls of its group. The context knows the epoch.
struct EpochOp {
  uint32_t group = 0;
  uint64_t number = 0;
  auto operator<=>(const EpochOp&) const = default;
};

struct OpId {
  uint32_t epoch = 0;
  uint32_t group = 0;
  uint64_t number = 0;
  auto operator<=>(const OpId&) const = default;

  EpochOp in_epoch() const { return {group, number}; }
};

}  // namespace tutti

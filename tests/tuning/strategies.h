// The strategies and the unit of the tests of the tuning room.
#pragma once

#include <cstdint>

#include "daemon/base/strategy.h"

namespace tutti {

inline constexpr Strategy kCentral{StrategyKind::centralized};
inline constexpr Strategy kRing{StrategyKind::ring};
constexpr Strategy tree(uint32_t arity) { return {StrategyKind::tree, arity}; }
inline constexpr uint64_t kMiB = uint64_t{1} << 20;

}  // namespace tutti

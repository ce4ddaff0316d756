// How the peers of a process, and the processes, work together: burn's CollectiveConfig. A value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/base/status.h"
#include "daemon/base/strategy.h"

namespace tutti::burn {

inline constexpr Strategy kTree2 = {StrategyKind::tree, 2};
inline constexpr Strategy kRing = {StrategyKind::ring, 0};
inline constexpr Strategy kCentralized = {StrategyKind::centralized, 0};

struct CollectiveConfig {
  uint32_t num_devices = 1;  // Peers of this process.
  Strategy local_all_reduce_strategy = kTree2;
  Strategy local_reduce_strategy = kTree2;     // Not a ring, and the next neither.
  Strategy local_broadcast_strategy = kTree2;  // Copies are the same in every order.
  // All four or none. With them num_nodes processes work together. The global address names their
  // job, and is the same for all; the other two are not used: Tutti's daemons carry the data.
  std::optional<uint32_t> num_nodes = std::nullopt;
  std::optional<std::string> global_address = std::nullopt;
  std::optional<std::string> node_address = std::nullopt;
  std::optional<uint16_t> data_service_port = std::nullopt;
  Strategy global_all_reduce_strategy = kRing;
  Strategy global_reduce_strategy = kTree2;
  Strategy global_broadcast_strategy = kTree2;

  // Whether the four global parameters are all given, or none.
  bool is_valid() const;
  // Whether several processes work together.
  bool operator==(const CollectiveConfig&) const = default;
};

// OK, or the error InvalidConfig, which names the field: is_valid() is false; no devices or more
// than 240; no nodes; a tree of arity 0, an automatic strategy, a ring where it is not possible.
Status validate(const CollectiveConfig& config);

// "num_devices is 2, not 3": the first field in which `given` differs from `wanted`; empty: none.
std::string difference(const CollectiveConfig& wanted, const CollectiveConfig& given);

}  // namespace tutti::burn

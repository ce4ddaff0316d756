// The strategies of an operation: their text forms, and the numbers that requests and messages
// carry.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/base/status.h"

namespace tutti {

enum class StrategyKind : uint8_t {
  // Never in a Plan. Each host resolves it by the group's table, the same on every host, which the
  // leader changes; without an entry by the automatic rule.
  automatic = TUTTI_AUTO,
  centralized = TUTTI_CENTRALIZED,
  tree = TUTTI_TREE,
  ring = TUTTI_RING,
};

inline constexpr uint32_t kArityMax = (1u << 24) - 1;  // The most a packed strategy can hold.

struct Strategy {
  StrategyKind kind = StrategyKind::automatic;
  uint32_t arity = 0;  // Tree only, >= 1.
  auto operator<=>(const Strategy&) const = default;
};

// Local: within a host. Global: among hosts.
struct Strategies {
  Strategy local;
  Strategy global;
  auto operator<=>(const Strategies&) const = default;
};

// "ring", "centralized", "tree:3", "auto"; also the JSON forms "Ring", "Centralized", {"Tree":3}.
// INVALID_ARGUMENT with the forms that exist for anything else; "tree:0" says that arity must be
// >= 1.
Result<Strategy> parse_strategy(std::string_view text);
// One strategy for both levels, or "LOCAL,GLOBAL", each in either form.
Result<Strategies> parse_strategies(std::string_view text);
std::string to_string(const Strategy& strategy);
std::string to_string(const Strategies& strategies);  // "ring" where both are the same, else "a,b".

// As pack_strategy() of proto/board.h.
uint32_t packed(const Strategy& strategy);
// The inverse. INVALID_ARGUMENT: packed() returns no such number.
Result<Strategy> unpacked(uint32_t packed);
Result<Strategies> unpacked(uint32_t local, uint32_t global);

}  // namespace tutti

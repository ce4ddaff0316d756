#include "daemon/schedule/strategies.h"

#include <algorithm>

namespace tutti {

Forms forms_of(StrategyKind kind) {
  switch (kind) {
    case StrategyKind::centralized:
    case StrategyKind::tree:
      return tree_forms();
    case StrategyKind::ring:
      return ring_forms();
    case StrategyKind::automatic:
      break;
  }
  fail_requirement("auto is resolved before a plan is made");
}

// Centralized is the heap in which every member is the root's child. Larger arities than that are
// the same heap, so they are cut here and no product of position and arity overflows.
Level level_of(const Strategy& strategy, std::vector<int> members) {
  const uint32_t widest = std::max<uint32_t>(2, members.size()) - 1;
  uint32_t arity = 1;
  if (strategy.kind == StrategyKind::centralized) arity = widest;
  if (strategy.kind == StrategyKind::tree) arity = std::min(strategy.arity, widest);
  return {std::move(members), static_cast<int>(arity), forms_of(strategy.kind)};
}

}  // namespace tutti

// The execution plans of the operations that a host has run. Pure.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "daemon/base/signature.h"
#include "daemon/engine/engine.h"
#include "daemon/group/communicator.h"
#include "proto/board.h"

namespace tutti {

// Reproducible reductions up to this size take as few rounds as there can be: `auto` goes by a
// rank's tensor, and whether a plan is raw by those of all ranks together, which each host gets.
inline constexpr uint64_t kSmallReproducibleBytes = 64 * 1024;

// Whether the operation's plan is raw. A function of what hosts agree on: all decide alike.
inline bool is_raw(const Signature& signature, const Strategies& strategies,
                   const Communicator& group) {
  const bool can_be = signature.reproducible && strategies.global.kind == StrategyKind::centralized;
  const auto ranks = static_cast<uint64_t>(group.size());
  const bool is_foldable = ranks <= kLocalRanksMax;  // At once.
  if (!can_be || !is_foldable || bytes_of(signature) > kSmallReproducibleBytes) return false;
  const uint64_t blocks = signature.collective == Collective::reduce_scatter ? ranks : 1;
  return bytes_of(signature) * blocks * ranks <= kSmallReproducibleBytes;
}

class PlanCache {
 public:
  // `number`: the group's, whose ranks do not change. Operations in progress share ownership of
  // theirs. Needs no memory for a plan that is known, whatever the number of hosts.
  std::shared_ptr<const ExecutionPlan> find_or_make(uint32_t number, const Communicator& group,
                                                    const Signature& signature,
                                                    const Strategies& strategies) {
    if (plans_.size() >= kPlansMax) plans_.clear();
    const auto root = static_cast<int>(signature.root);
    const bool raw = is_raw(signature, strategies, group);
    std::shared_ptr<const ExecutionPlan>& cached =
        plans_[{number, signature.collective, root, strategies, signature.reproducible, raw}];
    if (cached == nullptr)
      cached = make_execution_plan(
          {signature.collective, root, strategies, group.topology(), signature.reproducible, raw},
          group.self_in_topology());
    return cached;
  }

 private:
  static constexpr size_t kPlansMax = 256;
  using Key = std::tuple<uint32_t, Collective, int, Strategies, bool, bool>;
  std::map<Key, std::shared_ptr<const ExecutionPlan>> plans_;
};

}  // namespace tutti

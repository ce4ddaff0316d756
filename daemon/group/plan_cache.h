// The execution plans of the operations that a host has run. Pure.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "daemon/base/signature.h"
#include "daemon/engine/engine.h"
#include "daemon/group/communicator.h"

namespace tutti {

class PlanCache {
 public:
  // `number`: the group's, whose ranks do not change. Operations in progress share ownership of
  // theirs. Needs no memory for a plan that is known, whatever the number of hosts.
  std::shared_ptr<const ExecutionPlan> find_or_make(uint32_t number, const Communicator& group,
                                                    const Signature& signature,
                                                    const Strategies& strategies, bool raw) {
    if (plans_.size() >= kPlansMax) plans_.clear();
    const auto root = static_cast<int>(signature.root);
    const bool reproducible = signature.reproducible || raw;
    std::shared_ptr<const ExecutionPlan>& cached =
        plans_[{number, signature.collective, root, strategies, reproducible, raw}];
    if (cached == nullptr)
      cached = make_execution_plan(
          {signature.collective, root, strategies, group.topology(), reproducible, raw},
          group.self_in_topology());
    return cached;
  }

 private:
  static constexpr size_t kPlansMax = 256;
  using Key = std::tuple<uint32_t, Collective, int, Strategies, bool, bool>;
  std::map<Key, std::shared_ptr<const ExecutionPlan>> plans_;
};

}  // namespace tutti

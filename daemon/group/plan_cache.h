// The execution plans of the operations that a host has run. Pure.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "daemon/engine/engine.h"
#include "daemon/group/communicator.h"

namespace tutti {

class PlanCache {
 public:
  // `number`: the group's, whose ranks do not change. Operations in progress share ownership of
  // theirs. Needs no memory for a plan that is known, whatever the number of hosts.
  std::shared_ptr<const ExecutionPlan> find_or_make(uint32_t number, const Communicator& group,
                                                    Collective collective, int root,
                                                    const Strategies& strategies,
                                                    bool reproducible) {
    if (plans_.size() >= kPlansMax) plans_.clear();
    std::shared_ptr<const ExecutionPlan>& cached =
        plans_[{number, collective, root, strategies, reproducible}];
    if (cached == nullptr)
      cached = make_execution_plan({collective, root, strategies, group.topology(), reproducible},
                                   group.self_in_topology());
    return cached;
  }

 private:
  static constexpr size_t kPlansMax = 256;
  using Key = std::tuple<uint32_t, Collective, int, Strategies, bool>;
  std::map<Key, std::shared_ptr<const ExecutionPlan>> plans_;
};

}  // namespace tutti

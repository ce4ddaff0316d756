// The execution plans of the operations that a host has run. Pure.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "daemon/engine/engine.h"
#include "daemon/group/communicator.h"

namespace tutti {

class PlanCache {
 public:
  // `number`: the group's. Operations in progress share ownership of theirs.
  std::shared_ptr<const ExecutionPlan> find_or_make(uint32_t number, const Communicator& group,
                                                    const Plan& plan) {
    if (plans_.size() >= kPlansMax) plans_.clear();
    std::shared_ptr<const ExecutionPlan>& cached = plans_[{number, plan}];
    if (cached == nullptr) cached = make_execution_plan(plan, group.self_in_topology());
    return cached;
  }

 private:
  static constexpr size_t kPlansMax = 256;
  std::map<std::pair<uint32_t, Plan>, std::shared_ptr<const ExecutionPlan>> plans_;
};

}  // namespace tutti

#include "client/rank/under_way.h"

namespace tutti::client {

// Calls `function` without the lock. Allocates nothing.
template <class Function>
void UnderWay::for_each(const Function& function) {
  for (size_t i = 0;; ++i) {
    std::shared_ptr<GroupOperations> group;
    {
      const std::lock_guard lock(mutex_);
      if (i >= groups_.size()) return;
      group = groups_[i];
    }
    function(*group);
  }
}

void UnderWay::settle_all() {
  for_each([](GroupOperations& group) { group.settle_finished(); });
}

void UnderWay::cancel_all(TimePoint limit) {
  for_each([limit](GroupOperations& group) { group.cancel(limit); });
}

void UnderWay::add(const std::shared_ptr<GroupOperations>& group) {
  settle_all();
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [](const std::shared_ptr<GroupOperations>& old) {
    return old.use_count() == 1 && !old->holds_memory();
  });
  groups_.push_back(group);
}

}  // namespace tutti::client

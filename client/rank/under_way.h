// The operations under way of one rank, on all its groups, as its connection and its memory know
// them. Safe from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "client/rank/clock.h"

namespace tutti::client {

// The operations of one group.
class GroupOperations {
 public:
  GroupOperations() = default;
  GroupOperations(const GroupOperations&) = delete;
  GroupOperations& operator=(const GroupOperations&) = delete;
  virtual ~GroupOperations() = default;

  // The rank leaves: gives every operation under way an outcome, except those on GPUs, which have
  // one at `limit` at the latest. No thread of this rank folds when it returns.
  virtual void cancel(TimePoint limit) = 0;
  // Settles the operations that ended, so that their slots may be reused.
  virtual void settle_finished() = 0;
  // Whether abandoned operations without an outcome hold memory.
  virtual bool holds_memory() const = 0;
};

class UnderWay {
 public:
  // Keeps those of a new group until the group is gone and none of them holds memory.
  void add(const std::shared_ptr<GroupOperations>& group);
  // GroupOperations::settle_finished() of all groups.
  void settle_all();
  // GroupOperations::cancel() of all groups.
  void cancel_all(TimePoint limit);
  // Adds to the number of abandoned operations, which may hold memory.
  void count_abandoned(int change) { abandoned_ += change; }
  bool has_abandoned() const { return abandoned_ != 0; }

 private:
  template <class Function>
  void for_each(const Function& function);

  std::atomic<int> abandoned_ = 0;
  std::mutex mutex_;  // Guards what follows.
  std::vector<std::shared_ptr<GroupOperations>> groups_;
};

}  // namespace tutti::client

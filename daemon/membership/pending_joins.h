// Joins of a job that wait for its next epoch.
#pragma once

#include <map>
#include <set>
#include <string>

#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "daemon/membership/effects.h"

namespace tutti {

struct PendingJoin {
  WorkerStream worker;
  v1::JoinRank join;
  TimePoint deadline;
};

// All have the same world size.
class PendingJoins {
 public:
  bool empty() const { return by_rank_.empty(); }
  bool contains(uint32_t rank) const { return by_rank_.contains(rank); }
  bool is_complete() const { return !empty() && by_rank_.size() == world_size(); }
  bool fits(const v1::JoinRank& join) const { return empty() || world_size() == join.world_size(); }
  // ALREADY_EXISTS: the rank waits already. FAILED_PRECONDITION: another worker calls itself by the
  // same host.
  Status check(const v1::JoinRank& join) const;
  void add(const PendingJoin& pending) { by_rank_.emplace(pending.join.rank(), pending); }
  void remove(WorkerStream worker, uint32_t rank);
  void remove(WorkerStream worker);
  // Refuses all, and `late`, whose world size differs from theirs.
  void refuse_world_size(const PendingJoin& late, Effects& out);
  // Removes, refuses and returns the ranks whose time is up.
  std::set<uint32_t> expire(TimePoint now, const Status& why, Effects& out);
  TimePoint next_deadline() const;
  void clear() { by_rank_.clear(); }
  std::set<uint32_t> missing() const;
  uint32_t world_size() const { return by_rank_.begin()->second.join.world_size(); }

  auto begin() const { return by_rank_.begin(); }
  auto end() const { return by_rank_.end(); }

 private:
  std::map<uint32_t, PendingJoin> by_rank_;
};

void refuse(const PendingJoin& pending, const Status& why, Effects& out);

}  // namespace tutti

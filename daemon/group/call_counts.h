// How many operations of a group each rank of this host has called. Pure.
//
// An operation is the number-th call of every rank, and a rank makes its calls in order, so one
// count per rank tells who has called what.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "daemon/group/communicator.h"

namespace tutti {

// All ranks are ranks of the group that live on this host.
class CallCounts {
 public:
  explicit CallCounts(const Communicator& group)
      : group_(group), next_(static_cast<size_t>(group.size())), left_(next_.size()) {}

  // The number of the rank's next call.
  uint64_t next(int rank) const { return next_[static_cast<size_t>(rank)]; }
  // Counts a call and returns its number.
  uint64_t count_call(int rank) { return next_[static_cast<size_t>(rank)]++; }
  // The rank's calls below this number have ended, or its host's ranks complete them.
  void skip_to(int rank, uint64_t number) {
    uint64_t& next = next_[static_cast<size_t>(rank)];
    next = std::max(next, number);
  }
  // The rank makes no further call.
  void leave(int rank) { left_[static_cast<size_t>(rank)] = true; }

  // All ranks have called the operations below this number. A rank that left holds it back.
  uint64_t called_by_all() const {
    uint64_t least = std::numeric_limits<uint64_t>::max();
    for (const int rank : group_.ranks_here()) least = std::min(least, next(rank));
    return group_.ranks_here().empty() ? 0 : least;
  }
  // All ranks that have not left have called the operations below this number.
  uint64_t called_by_present() const {
    uint64_t least = std::numeric_limits<uint64_t>::max();
    for (const int rank : group_.ranks_here())
      if (!left_[static_cast<size_t>(rank)]) least = std::min(least, next(rank));
    return least;
  }
  // The ranks that have not called the operation.
  std::vector<int> missing_ranks(uint64_t number) const {
    std::vector<int> ranks;
    for (const int rank : group_.ranks_here())
      if (next(rank) <= number) ranks.push_back(rank);
    return ranks;
  }

 private:
  const Communicator& group_;
  std::vector<uint64_t> next_;  // By rank of the group; only local ones change.
  std::vector<bool> left_;
};

}  // namespace tutti

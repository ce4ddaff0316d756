// The ranks of one host in one group: how far each has come, and whether they agree. Pure.
//
// An operation is the number-th call of every rank, and a rank makes its calls in order: so one
// count a rank says who has called what.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "daemon/base/signature.h"
#include "daemon/group/communicator.h"

namespace tutti {

class Matcher {
 public:
  explicit Matcher(const Communicator& group)
      : group_(group), next_(static_cast<size_t>(group.size())), gone_(next_.size()) {}

  // The rank's next operation. Ranks of the group that live here.
  uint64_t next(int rank) const { return next_[static_cast<size_t>(rank)]; }
  uint64_t take(int rank) { return next_[static_cast<size_t>(rank)]++; }
  // What it called below this number is over, or its ranks see to it.
  void skip(int rank, uint64_t number) {
    uint64_t& next = next_[static_cast<size_t>(rank)];
    next = std::max(next, number);
  }
  // It will call no more.
  void leave(int rank) { gone_[static_cast<size_t>(rank)] = true; }

  // All have called the operations below this one. One who is gone holds it back for ever.
  uint64_t called_by_all() const {
    uint64_t least = std::numeric_limits<uint64_t>::max();
    for (const int rank : group_.local_ranks()) least = std::min(least, next(rank));
    return group_.local_ranks().empty() ? 0 : least;
  }
  // All that will ever call the operations below this one have.
  uint64_t passed() const {
    uint64_t least = std::numeric_limits<uint64_t>::max();
    for (const int rank : group_.local_ranks())
      if (!gone_[static_cast<size_t>(rank)]) least = std::min(least, next(rank));
    return least;
  }
  std::vector<int> missing(uint64_t number) const {
    std::vector<int> ranks;
    for (const int rank : group_.local_ranks())
      if (next(rank) <= number) ranks.push_back(rank);
    return ranks;
  }

 private:
  const Communicator& group_;
  std::vector<uint64_t> next_;  // By rank of the group; local ones move.
  std::vector<bool> gone_;
};

// What the ranks of a host that have called an operation ask for.
struct Agreed {
  int rank = -1;  // The first; -1: nobody has called.
  Signature signature;
};

}  // namespace tutti

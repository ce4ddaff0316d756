// The numbers of a group's ended operations, in bounded memory: all below a mark, and a set of
// those above it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

namespace tutti {

class EndedOperations {
 public:
  // A number that never ends would hold the mark back for ever, so the mark skips it once the set
  // exceeds this size. The limit is larger than the group room's kFailuresMax: an operation that a
  // slow rank may still call is never reported as ended.
  static constexpr size_t kBeyondMax = 131'072;

  void add(uint64_t number) {
    if (number == below_)
      ++below_;  // Most end in order.
    else if (number > below_)
      beyond_.insert(number);
    if (beyond_.size() > kBeyondMax) below_ = *beyond_.begin();
    while (!beyond_.empty() && *beyond_.begin() == below_) {
      beyond_.erase(beyond_.begin());
      ++below_;
    }
  }
  bool contains(uint64_t number) const { return number < below_ || beyond_.contains(number); }

 private:
  uint64_t below_ = 0;
  std::set<uint64_t> beyond_;
};

}  // namespace tutti

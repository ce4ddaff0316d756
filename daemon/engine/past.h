// Which operations of a group are over, in bounded memory: all numbers below a mark, and a few past
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

namespace tutti {

class Past {
 public:
  // Numbers that never come at all would hold the mark back for ever: past so many it moves on.
  // That is more than the failures that the group keeps for ranks that are behind, so that what
  // they may yet call is never taken for over.
  static constexpr size_t kBeyondMost = 131'072;

  void add(uint64_t number) {
    if (number >= below_) beyond_.insert(number);
    if (beyond_.size() > kBeyondMost) below_ = *beyond_.begin();
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

// Lists of tensors come as several calls. The first of them speaks for the list: what its rank asks
// for after it waits, without a number, until all ranks have agreed to the first. Where they do
// not, the rest of the list fails with it and takes no number. So ranks whose lists are cut into
// different numbers of calls still meet at the same operation next.
//
// One for each local rank of a group. Pure: it says what is to become of a call.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/group/group.h"

namespace tutti {

class Gate {
 public:
  enum class Way {
    pass,    // Take a number.
    open,    // Take a number, and tell the verdict with settle().
    wait,    // Kept here; comes again with take().
    refuse,  // It ends with refusal().
  };
  // Takes the call only where it has to wait.
  Way admit(Call& call, TimePoint now);
  const Status& refusal() const { return refusal_; }

  // The operation that the list waits for, which was admitted as `open`.
  void shut(uint64_t seq) { opening_ = seq; }
  bool waits_for(uint64_t seq) const { return shut_ && opening_ == seq; }
  void settle(const Status& verdict);
  // What waited, to be admitted anew; that time is gone from their deadlines.
  std::vector<Call> take(TimePoint now);

 private:
  bool shut_ = false;
  uint64_t opening_ = 0;
  uint64_t layout_ = 0;  // Of the list that is under way.
  uint32_t following_ = 0;
  Status refusal_;
  struct Waiting {
    Call call;
    TimePoint since;
  };
  std::vector<Waiting> waiting_;
};

}  // namespace tutti

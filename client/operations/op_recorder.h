// What a rank records of its operations on one group: in the flight recorder, and in its counters
// on the board. The caller holds the lock of the queue.
#pragma once

#include "client/operations/pending_op.h"

namespace tutti::client {

class OpRecorder {
 public:
  // `group`: the index of its area on the board.
  OpRecorder(const HostMemory& memory, uint32_t group)
      : recorder_(memory.recorder()),
        counters_(memory.view().counters(memory.seat())),
        group_(group) {}

  // The operation has arrived; sets what end() needs.
  void begin(const Request& request, PendingOp& op);
  // It has ended, or nobody knows it any more.
  void end(const PendingOp& op, Code code);
  // Its outcome goes to the counters.
  void count(const PendingOp& op);

 private:
  RankRecorder& recorder_;
  BoardCounters& counters_;
  const uint32_t group_;
};

}  // namespace tutti::client

// What a rank records of its operations on one group: in the flight recorder, and in its counters
// on the board. The caller holds the lock of the queue.
#pragma once

#include "client/rank/host_memory.h"
#include "daemon/board/board.h"
#include "proto/types.h"

namespace tutti::client {

// What is recorded of one operation.
struct OpRecord {
  Collective collective = Collective::barrier;
  uint64_t bytes = 0;       // Of its tensors.
  uint64_t arrived_ns = 0;  // By trace::now_ns().
  uint64_t index = 0;       // In the flight recorder.
};

class OpRecorder {
 public:
  // `group`: the index of its area on the board.
  OpRecorder(const HostMemory& memory, uint32_t group)
      : recorder_(memory.recorder()),
        counters_(memory.view().counters(memory.local_rank())),
        group_(group) {}

  // The operation of this number has arrived. Sets what end() needs.
  void begin(const Request& request, uint64_t number, OpRecord& record);
  // It has ended, or nobody knows it any more.
  void end(const OpRecord& record, Code code);
  // Its outcome goes to the counters.
  void count(const OpRecord& record, const Status& outcome);

 private:
  RankRecorder& recorder_;
  BoardCounters& counters_;
  const uint32_t group_;
};

}  // namespace tutti::client

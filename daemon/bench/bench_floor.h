// What a collective on GPUs is compared with: the time in which they only copy.
#pragma once

#include "daemon/bench/bench_client.h"

namespace tutti {

// The ranks whose tensors are on GPUs.
class BenchFloor {
 public:
  // Called by all ranks of the group at once. Throws.
  BenchFloor(tutti_group* group, BenchGpu& gpu);

  int gpus() const { return gpus_; }  // Of all ranks together.

  // The median time in which every GPU copies `bytes` from memory of its own to memory of its own
  // once for each rank that is on it: one read and one write a rank. For each GPU the first rank
  // asks for its copies, one after the other; all others return 0. Throws.
  double copy_us(uint64_t bytes) const;

 private:
  BenchGpu& gpu_;
  int gpus_ = 0;
  uint64_t copies_ = 0;  // That this rank asks for.
};

}  // namespace tutti

// Where the elements of a chunk's slice lie: pure arithmetic, the same on all hosts.
//
// A tensor is cut into slices, in order, and each slice into the plan's chunks, evenly, the first
// ones an element longer: so it streams through a small window. In all_gather and reduce_scatter a
// chunk is a rank's block, and slice s is the s-th part of every block.
#pragma once

#include <cstdint>

#include "daemon/schedule/schedule.h"
#include "proto/board.h"

namespace tutti {

struct Range {
  uint64_t first = 0;  // Element, from the start of the tensor, or of all blocks.
  uint64_t count = 0;
};

class Geometry {
 public:
  // `count` as an operation's: of a block in all_gather and reduce_scatter. `slice_bytes`: of all
  // chunks.
  Geometry(const Plan& plan, Dtype dtype, uint64_t count, uint64_t slice_bytes);

  uint64_t slices() const { return slices_; }  // At least 1.
  int chunks() const { return chunks_; }
  bool is_empty() const { return count_ == 0; }
  Range slice(int chunk, uint64_t slice) const;
  // Where the tensor's slice ends, in bytes from its start. Not for all_gather and reduce_scatter.
  uint64_t end_of(uint64_t slice) const;

  // Of a rank's tensors, as bytes from their start, where its contribution to the range lies and
  // where its result belongs.
  uint64_t input_offset(int chunk, const Range& range) const;
  uint64_t output_offset(int chunk, const Range& range) const;

 private:
  Collective collective_;
  uint64_t count_;
  uint64_t element_bytes_;
  int chunks_;
  uint64_t slice_elements_;  // Of all chunks, or of one block.
  uint64_t slices_;
};

}  // namespace tutti

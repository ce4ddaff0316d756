// The element range of each (chunk, slice) of a tensor: pure arithmetic, the same on all hosts.
//
// A tensor is cut into slices in order, and each slice evenly into the plan's chunks, the first
// chunks one element longer, so that a tensor of any size streams through a small window. Where
// the tensors consist of blocks (base/blocks.h) these are the chunks, and slice s is the s-th part
// of every block.
#pragma once

#include <cstdint>

#include "daemon/base/blocks.h"
#include "daemon/schedule/schedule.h"
#include "proto/board.h"

namespace tutti {

struct Range {
  uint64_t first = 0;  // Element index from the start of the tensor, or of all blocks.
  uint64_t count = 0;
};

class Geometry {
 public:
  // `count`: as Operation::count, that is of one block where there are blocks.
  // `slice_bytes`: of all chunks of a slice together.
  Geometry(const Plan& plan, Dtype dtype, uint64_t count, uint64_t slice_bytes);

  uint64_t slices() const { return slices_; }  // At least 1.
  int chunks() const { return chunks_; }
  bool is_empty() const { return count_ == 0; }
  Range slice(int chunk, uint64_t slice) const;
  // The end of the slice in bytes from the tensor's start. Not where there are blocks.
  uint64_t end_of(uint64_t slice) const;

  // Byte offsets in a rank's input tensor, of its contribution to the range, and in its output
  // tensor, of the result.
  uint64_t input_offset(int chunk, const Range& range) const;
  uint64_t output_offset(int chunk, const Range& range) const;

 private:
  bool has_blocks() const { return tutti::has_blocks(blocks_.collective); }
  uint64_t offset(int chunk, uint32_t index, const Range& range) const;

  Blocks blocks_;
  uint64_t count_;
  uint64_t element_bytes_;
  int chunks_;
  uint64_t slice_elements_;  // Of all chunks together, or of one block.
  uint64_t slices_;
};

}  // namespace tutti

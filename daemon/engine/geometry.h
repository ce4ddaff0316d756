// The element range of each (chunk, slice) of a tensor: pure arithmetic, the same on all hosts.
//
// A tensor is cut into slices in order, and each slice evenly into the plan's chunks, the first
// chunks one element longer, so that a tensor of any size streams through a small window. Where
// the tensors consist of blocks (base/blocks.h) these are the chunks, and slice s is the s-th part
// of every block that is long enough to have one.
#pragma once

#include <cstdint>

#include "daemon/base/block_sizes.h"
#include "daemon/schedule/schedule.h"
#include "proto/board.h"

namespace tutti {

struct Range {
  uint64_t first = 0;  // Element index from the start of the tensor, or of the block.
  uint64_t count = 0;
};

class Geometry {
 public:
  // `count`: as Operation::count, that is of one block where there are blocks.
  // `slice_bytes`: of all chunks of a slice together.
  // `counts`: of each block, where they have counts of their own; else empty.
  Geometry(const Plan& plan, Dtype dtype, uint64_t count, uint64_t slice_bytes,
           std::span<const uint64_t> counts = {});

  uint64_t slices() const { return slices_; }  // At least 1.
  int chunks() const { return chunks_; }
  bool is_empty() const { return sizes_.largest() == 0; }
  // Whether empty chunks are sent in the first slice, where others are not empty: the agreement of
  // hosts leans on a message for each block (schedule.h).
  bool sends_empty_blocks() const { return sizes_.has_counts(); }
  Range slice(int chunk, uint64_t slice) const;
  // Where there are blocks: elements of each in a slice.
  uint64_t slice_elements() const { return slice_elements_; }
  // The end of the slice in bytes from the tensor's start. Not where there are blocks.
  uint64_t end_of(uint64_t slice) const;

  // Byte offsets in a rank's input tensor, of its contribution to the range, and in its output
  // tensor, of the result.
  uint64_t input_offset(int chunk, const Range& range) const;
  uint64_t output_offset(int chunk, const Range& range) const;
  // Where there are blocks: the chunk's index among those of such an input, and of such an output.
  uint32_t index_in_input(int chunk) const {
    return sizes_.blocks().index_in_input(static_cast<uint32_t>(chunk));
  }
  uint32_t index_in_output(int chunk) const {
    return sizes_.blocks().index_in_output(static_cast<uint32_t>(chunk));
  }

 private:
  bool has_blocks() const { return tutti::has_blocks(sizes_.blocks().collective); }

  BlockSizes sizes_;  // Without blocks: `largest` is the whole tensor's count.
  uint64_t element_bytes_;
  int chunks_;
  uint64_t slice_elements_;  // Of all chunks together, or of one block.
  uint64_t slices_;
};

}  // namespace tutti

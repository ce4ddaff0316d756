// The numbers of elements of the blocks of a collective (base/blocks.h), and where the blocks lie
// in the ranks' tensors. Pure arithmetic, the same on all hosts.
//
// Either all blocks have the same size, or each has its own count.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/base/blocks.h"

namespace tutti {

// Larger than any memory; sums of counts end here instead of wrapping around.
inline constexpr uint64_t kElementsMax = uint64_t{1} << 56;

class BlockSizes {
 public:
  // Every block has `count` elements. Allocates nothing.
  BlockSizes(const Blocks& blocks, uint64_t count) : blocks_(blocks), largest_(count) {}
  // Block b has counts[b] elements; there are blocks.count() counts.
  BlockSizes(const Blocks& blocks, std::span<const uint64_t> counts) { assign(blocks, counts); }
  // Takes over a copy of the counts, and uses only that: another process may change them meanwhile.
  // Allocates nothing if reserve() was called for as many blocks.
  void assign(const Blocks& blocks, std::span<const uint64_t> counts);
  void assign(const Blocks& blocks, uint64_t count);
  void reserve(size_t blocks);

  const Blocks& blocks() const { return blocks_; }
  bool has_counts() const { return !counts_.empty(); }
  std::span<const uint64_t> counts() const { return counts_; }
  uint64_t count(uint32_t block) const { return has_counts() ? counts_[block] : largest_; }
  uint64_t largest() const { return largest_; }

  // The block's first element, and the number of elements, in the tensors that have it. In
  // elements.
  uint64_t first_in_input(uint32_t block) const {
    return has_counts() ? first_in_input_[block] : blocks_.index_in_input(block) * largest_;
  }
  uint64_t first_in_output(uint32_t block) const {
    return has_counts() ? first_in_output_[block] : blocks_.index_in_output(block) * largest_;
  }
  // Elements of the rank's input, and of its output; 0: it has no such side. More than kElementsMax
  // if they are too many.
  uint64_t input_elements(uint32_t rank) const;
  uint64_t output_elements(uint32_t rank) const;

 private:
  uint64_t sum(uint32_t first, uint32_t step) const;

  Blocks blocks_;
  uint64_t largest_ = 0;
  std::vector<uint64_t> counts_;
  std::vector<uint64_t> first_in_input_;
  std::vector<uint64_t> first_in_output_;
};

}  // namespace tutti

#include "daemon/base/block_sizes.h"

#include <algorithm>

namespace tutti {
namespace {

uint64_t saturating_sum(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) || sum > kElementsMax ? kElementsMax + 1 : sum;
}

}  // namespace

void BlockSizes::assign(const Blocks& blocks, uint64_t count) {
  blocks_ = blocks;
  counts_.clear();
  largest_ = count;
}

void BlockSizes::reserve(size_t blocks) {
  for (std::vector<uint64_t>* numbers : {&counts_, &first_in_input_, &first_in_output_})
    numbers->reserve(blocks);
}

void BlockSizes::assign(const Blocks& blocks, std::span<const uint64_t> counts) {
  blocks_ = blocks;
  counts_.assign(counts.begin(), counts.end());
  first_in_input_.assign(counts.size(), 0);
  first_in_output_.assign(counts.size(), 0);
  if (counts_.empty()) return;
  largest_ = std::ranges::max(counts_);
  // Blocks of one input or output follow each other in ascending order.
  const bool is_exchange = blocks.collective == Collective::all_to_all;
  const uint32_t ranks = blocks.ranks;
  for (uint32_t b = 1; b < counts_.size(); ++b)
    if (has_input_blocks(blocks.collective) && (!is_exchange || b % ranks != 0))
      first_in_input_[b] = saturating_sum(first_in_input_[b - 1], counts_[b - 1]);
  for (uint32_t b = is_exchange ? ranks : 1; b < counts_.size(); ++b)
    if (const uint32_t before = is_exchange ? b - ranks : b - 1;
        has_output_blocks(blocks.collective))
      first_in_output_[b] = saturating_sum(first_in_output_[before], counts_[before]);
}

// For as many blocks as there are ranks, from `first` on.
uint64_t BlockSizes::sum(uint32_t first, uint32_t step) const {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < blocks_.ranks; ++i) sum = saturating_sum(sum, count(first + i * step));
  return sum;
}

uint64_t BlockSizes::input_elements(uint32_t rank) const {
  const Collective collective = blocks_.collective;
  if (collective == Collective::scatter && rank != blocks_.root) return 0;
  if (!has_input_blocks(collective)) return count(rank);
  return sum(collective == Collective::all_to_all ? rank * blocks_.ranks : 0, 1);
}

uint64_t BlockSizes::output_elements(uint32_t rank) const {
  const Collective collective = blocks_.collective;
  if (collective == Collective::gather && rank != blocks_.root) return 0;
  if (!has_output_blocks(collective)) return count(rank);
  return collective == Collective::all_to_all ? sum(rank, blocks_.ranks) : sum(0, 1);
}

}  // namespace tutti

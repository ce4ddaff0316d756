#include "daemon/base/staged_rows.h"

#include "proto/board.h"

namespace tutti {
namespace {

constexpr uint64_t kPartMultiple = 64;    // Of elements: kernels like whole cache lines.
constexpr uint64_t kPartBytesMin = 2048;  // Of one block in a row: less is slow to copy.

// Parts in a row's place: of the larger side, or of both.
uint64_t parts_of(const Blocks& blocks) {
  return uint64_t{blocks.ranks} * (has_in_place(blocks.collective) ? 1 : 2);
}

// The two sides of a row lie as those of a call in place do, where that may be.
StagedRows with_sides(StagedRows rows, const Blocks& blocks, uint32_t rank) {
  const uint64_t own = rank * rows.part;
  if (!has_in_place(blocks.collective))
    rows.out = blocks.ranks * rows.part;
  else
    (has_output_blocks(blocks.collective) ? rows.in : rows.out) = own;
  return rows;
}

}  // namespace

StagedRows staged_rows(const Blocks& blocks, uint32_t rank, Dtype dtype, uint64_t count) {
  const uint64_t elements = kBoardBlockBytes / size_of(dtype) / parts_of(blocks);
  const uint64_t part = elements / kPartMultiple * kPartMultiple;
  if (part * size_of(dtype) < kPartBytesMin) return {};
  return with_sides({count, part, 0, 0, kBoardBlockBytes, kWindowBlocks}, blocks, rank);
}

StagedRows staged_rows_between_hosts(const Blocks& blocks, uint32_t rank, Dtype dtype,
                                     uint64_t count, uint64_t window_bytes) {
  if (window_bytes <= kBoardBlockBytes) return {};  // The slice is less than a window's share.
  const uint64_t part = block_slice_elements(blocks, dtype, window_bytes / kWindowSlices);
  const uint64_t place_bytes = parts_of(blocks) * part * size_of(dtype);
  if (2 * place_bytes > window_bytes) return {};
  return with_sides({count, part, 0, 0, place_bytes, window_bytes / place_bytes}, blocks, rank);
}

// Requests may name more blocks than Blocks counts.
uint64_t block_slice_elements(const Blocks& blocks, Dtype dtype, uint64_t slice_bytes) {
  const bool is_of_pairs = blocks.collective == Collective::all_to_all;
  const uint64_t chunks = uint64_t{blocks.ranks} * (is_of_pairs ? blocks.ranks : 1);
  const uint64_t whole = whole_slice_bytes(slice_bytes, chunks) / size_of(dtype);
  return std::max<uint64_t>(1, whole / chunks);
}

}  // namespace tutti

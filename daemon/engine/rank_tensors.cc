#include "daemon/engine/rank_tensors.h"

namespace tutti {

// Whether every rank's window holds the slice's input.
Result<bool> RankTensors::ready(uint64_t slice) {
  blocking_rank_ = -1;
  for (const RankBuffers* rank : ranks_.all()) {
    if (rank->window_bytes == 0) continue;
    if (!holds_slices(*rank)) return invalid_argument("a window that does not hold whole slices");
    if (rank->filled() >= blocks_until(slice)) continue;
    blocking_rank_ = rank->rank;
    return false;
  }
  return true;
}

bool RankTensors::holds_slices(const RankBuffers& rank) const {
  if (rank.rows.part != 0) return rank.rows.part == geometry_.slice_elements();
  const bool holds_all = geometry_.end_of(geometry_.slices() - 1) <= rank.window_bytes;
  return holds_all || rank.window_bytes % geometry_.end_of(0) == 0;
}

// Blocks of the board that the slices up to this one take, or rows, each of which is a slice.
uint64_t RankTensors::blocks_until(uint64_t slice) const {
  if (has_rows()) return slice + 1;
  return (geometry_.end_of(slice) + kBoardBlockBytes - 1) / kBoardBlockBytes;
}

}  // namespace tutti

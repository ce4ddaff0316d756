#include "daemon/engine/rank_tensors.h"

namespace tutti {

// Whether every rank's window holds the slice's input.
Result<bool> RankTensors::ready(uint64_t slice) {
  blocking_rank_ = -1;
  for (const RankBuffers* rank : ranks_.all()) {
    if (rank->window_bytes == 0) continue;
    const bool holds_all = geometry_.end_of(geometry_.slices() - 1) <= rank->window_bytes;
    if (!holds_all && rank->window_bytes % geometry_.end_of(0) != 0)
      return invalid_argument("a window that does not hold whole slices");
    if (rank->filled() >= geometry_.end_of(slice)) continue;
    blocking_rank_ = rank->rank;
    return false;
  }
  return true;
}

}  // namespace tutti

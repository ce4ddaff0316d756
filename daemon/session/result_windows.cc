#include "daemon/session/result_windows.h"

#include <algorithm>

namespace tutti {

ResultWindows::ResultWindows(const BoardOps& ops, uint64_t window_bytes)
    : ops_(ops), window_bytes_(page_up(window_bytes)) {
  static_assert(page_up(1) == kResultsMultiple);
  if (window_bytes_ == 0) return;
  for (uint64_t left = kResultBytes / window_bytes_; left != 0; --left)
    free_.push_back(kFoldBytes + (left - 1) * window_bytes_);
}

bool ResultWindows::is_in_use(const Window& window) {
  return std::ranges::any_of(window.group->local_ranks, [&](uint32_t local_rank) {
    return window.group->shared.area.settled(local_rank).load() <= window.number;
  });
}

std::byte* ResultWindows::make(const BoardOp& op, uint64_t bytes) {
  std::erase_if(used_, [this](const Window& window) {
    if (is_in_use(window)) return false;
    free_.push_back(window.offset);
    return true;
  });
  if (free_.empty() || bytes > window_bytes_) return nullptr;
  const uint64_t offset = free_.back();
  free_.pop_back();
  used_.push_back({op.group, op.number, offset});
  op.slot().results.store(
      pack(board::Count{op.generation(), static_cast<uint32_t>(1 + offset / kResultsMultiple)}));
  return ops_.view().wire() + offset;
}

}  // namespace tutti

#include "daemon/session/result_windows.h"

#include <algorithm>

namespace tutti {

bool ResultWindows::is_in_use(const Window& window) {
  return std::ranges::any_of(window.group->local_ranks, [&](uint32_t local_rank) {
    return window.group->shared.area.settled(local_rank).load() <= window.number;
  });
}

std::byte* ResultWindows::make(const BoardOp& op, uint64_t bytes) {
  std::erase_if(windows_, [this](const Window& window) {
    if (is_in_use(window)) return false;
    wire_.give_back(window.block);
    return true;
  });
  const Result<ScratchPool::Block> block = wire_.take(bytes);
  if (!block.ok()) return nullptr;
  windows_.push_back({op.group, op.number, *block});
  const auto offset = static_cast<uint64_t>(block->data - ops_.view().wire());
  op.slot().results.store(
      pack(board::Count{op.generation(), static_cast<uint32_t>(1 + offset / kResultsMultiple)}));
  return block->data;
}

}  // namespace tutti

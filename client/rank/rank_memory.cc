#include "client/rank/rank_memory.h"

#include <string>
#include <utility>

namespace tutti::client {
namespace {

// Bytes of free pages that are kept for reuse.
constexpr uint64_t kWarmBytesMax = uint64_t{1} << 30;

}  // namespace

Status RankMemory::map(Fd memory) {
  if (Status s = segment_->map(std::move(memory)); !s.ok()) return s;
  const MappedSegment& segment = *segment_;
  arena_.emplace(
      kArenaOffset, segment.bytes() - kArenaOffset, kWarmBytesMax,
      [&segment](uint64_t offset, uint64_t bytes) { segment.discard(offset, bytes); },
      [&segment](uint64_t offset, uint64_t bytes) { segment.populate(offset, bytes); });
  return {};
}

std::byte* RankMemory::allocate(uint64_t bytes, bool* cold) {
  if (!fork_guard_.is_own_process()) return nullptr;
  if (under_way_.has_abandoned()) under_way_.settle_all();
  const std::lock_guard lock(mutex_);
  const std::optional<uint64_t> block = arena_->allocate(bytes, cold);
  return block ? segment_->base() + *block : nullptr;
}

bool RankMemory::free(const void* memory) {
  if (!segment_->contains(memory, 0)) return false;
  if (!fork_guard_.is_own_process()) return true;
  const std::lock_guard lock(mutex_);
  return arena_->release_first(segment_->offset_of(memory));
}

std::optional<uint64_t> RankMemory::hold(const void* memory, uint64_t bytes) {
  if (!segment_->contains(memory, bytes) || !fork_guard_.is_own_process()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return arena_->hold(segment_->offset_of(memory), bytes);
}

Status RankMemory::check_block(const char* side, const void* memory, uint64_t bytes) {
  if (bytes == 0 || !is_shared(memory)) return {};
  const std::lock_guard lock(mutex_);
  const uint64_t room = arena_->room_at(segment_->offset_of(memory));
  if (bytes <= room) return {};
  return invalid_argument(std::string(side) + " has " + std::to_string(bytes) +
                          " bytes, but its block of tutti_alloc() has only " +
                          std::to_string(room) +
                          " from there on; allocate more, or pass a smaller count");
}

void RankMemory::release(const std::vector<uint64_t>& blocks) {
  if (blocks.empty() || !fork_guard_.is_own_process()) return;
  const std::lock_guard lock(mutex_);
  for (const uint64_t block : blocks) arena_->release(block);
}

uint64_t RankMemory::used_bytes() {
  const std::lock_guard lock(mutex_);
  return arena_->used_bytes();
}

}  // namespace tutti::client

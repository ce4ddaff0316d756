// The memory of one rank that the ranks of its host and its worker share: its segment, and the
// blocks that are allocated there. Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "client/rank/arena.h"
#include "client/rank/fork_guard.h"
#include "client/rank/mapped_segment.h"
#include "client/rank/under_way.h"

namespace tutti::client {

class RankMemory {
 public:
  // Both must outlive this.
  RankMemory(const ForkGuard& fork_guard, UnderWay& under_way)
      : fork_guard_(fork_guard), under_way_(under_way) {}
  // Maps the segment, once, before anything else is called. Errors as MappedSegment::map().
  Status map(Fd memory);

  // Memory of the segment; nullptr: there is no room. `cold`: where to store whether its pages are
  // not there yet, so that touching them takes longer; null: they are made.
  std::byte* allocate(uint64_t bytes, bool* cold = nullptr);
  // Makes the pages of memory that is cold.
  void populate(const std::byte* memory, uint64_t bytes) const {
    segment_->populate(offset_of(memory), bytes);
  }
  // False: `memory` is not the start of a block in use.
  bool free(const void* memory);
  // Holds the block that contains all of the memory, until release(); returns the block. nullopt:
  // no block does.
  std::optional<uint64_t> hold(const void* memory, uint64_t bytes);
  void release(const std::vector<uint64_t>& blocks);
  // INVALID_ARGUMENT: memory of the segment that exceeds its block. `side` names it in the message.
  Status check_block(const char* side, const void* memory, uint64_t bytes);
  bool is_shared(const void* memory) const { return segment_->contains(memory, 0); }
  uint64_t offset_of(const void* memory) const { return segment_->offset_of(memory); }
  std::byte* at(uint64_t offset) const { return segment_->base() + offset; }
  uint64_t used_bytes();
  // The memory stays mapped for as long as somebody has this.
  const std::shared_ptr<MappedSegment>& segment() const { return segment_; }

 private:
  const ForkGuard& fork_guard_;
  UnderWay& under_way_;
  const std::shared_ptr<MappedSegment> segment_ = std::make_shared<MappedSegment>();
  std::mutex mutex_;  // Guards what follows.
  std::optional<Arena> arena_;
};

}  // namespace tutti::client

// An allocator of a segment's arena. It handles offsets only, and neither touches the arena nor
// takes a lock. Only allocate() needs memory of its own, and has no effect if that is missing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

namespace tutti::client {

// First fit. Freed blocks stay *warm*: their pages are kept, and they are used first, because the
// first touch of a page costs more than a copy. Beyond `warm_bytes_max`, the pages of a freed block
// are returned through `discard`, which makes it *cold*.
class Arena {
 public:
  using OnPages = std::function<void(uint64_t offset, uint64_t bytes)>;

  // `populate`, if not empty, is called for every block that is allocated from cold memory.
  Arena(uint64_t offset, uint64_t bytes, uint64_t warm_bytes_max, OnPages discard,
        OnPages populate = {});

  // Returns a block with one holder, aligned to 64; nullopt: no free block is large enough.
  // `cold`: where to store whether the block's pages have yet to be made; null: they are made.
  std::optional<uint64_t> allocate(uint64_t bytes, bool* cold = nullptr);
  // How many bytes, of those requested for the block around `offset`, follow it; 0: no block.
  uint64_t room_at(uint64_t offset) const;
  // Adds a holder to the block that contains [offset, offset + bytes), and returns its start.
  // nullopt: no block was requested with that many bytes.
  std::optional<uint64_t> hold(uint64_t offset, uint64_t bytes);
  // Removes a holder. The block is freed with its last holder.
  void release(uint64_t block);
  // Removes the holder that allocate() added, once. False: not a block's start, or done already.
  bool release_first(uint64_t block);

  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t warm_bytes() const { return warm_bytes_; }

 private:
  // A free or used block: one type, so that freeing moves a map's node and needs no memory.
  struct Block {
    uint64_t bytes = 0;
    bool warm = false;       // Of free blocks.
    uint64_t requested = 0;  // Bytes; of used blocks, as are the next two.
    uint32_t holders = 0;
    bool first_released = false;
  };
  using Blocks = std::map<uint64_t, Block>;  // By offset.

  std::optional<uint64_t> allocate_from(uint64_t bytes, bool warm);
  std::optional<uint64_t> allocate_cold(uint64_t bytes, bool* cold);
  Blocks::const_iterator find_used(uint64_t offset) const;
  Blocks::iterator insert_free(Blocks::node_type node);
  void cool(Blocks::iterator extent);
  void cool_all();

  const uint64_t warm_bytes_max_;
  const OnPages discard_;
  const OnPages populate_;
  Blocks free_;  // Adjacent blocks that are both warm or both cold are merged.
  Blocks used_;
  uint64_t used_bytes_ = 0;
  uint64_t warm_bytes_ = 0;
};

}  // namespace tutti::client

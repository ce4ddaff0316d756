// Who uses which part of the segment's arena. Bookkeeping only: it holds offsets, touches no memory
// and takes no lock. Nothing but allocate() needs memory of its own, and that changes nothing where
// there is none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

namespace tutti::client {

// First fit. Freed blocks stay warm (their pages are kept) and are taken first, because the first
// touch of a page costs more than a copy; past `warm_bytes_max` they are given back through
// `discard`.
class Arena {
 public:
  using OnPages = std::function<void(uint64_t offset, uint64_t bytes)>;

  // `populate`, which may be empty, is told of every block that is allocated from cold memory.
  Arena(uint64_t offset, uint64_t bytes, uint64_t warm_bytes_max, OnPages discard,
        OnPages populate = {});

  // A block with one holder, aligned to 64; nullopt where none is large enough.
  std::optional<uint64_t> allocate(uint64_t bytes);
  // How much of what a block was asked for lies from `offset` on; 0: no block is there.
  uint64_t room_at(uint64_t offset) const;
  // The block that holds all of [offset, offset + bytes), as much as was asked for, gets one more
  // holder; its start is returned. nullopt: no block does.
  std::optional<uint64_t> hold(uint64_t offset, uint64_t bytes);
  // The block is free once its last holder releases it.
  void release(uint64_t block);
  // The release by the block's first holder, who may do so once. False: not a block's start, or
  // given back already.
  bool give_back(uint64_t block);

  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t warm_bytes() const { return warm_bytes_; }

 private:
  // One type for both, so that a block changes sides as it is.
  struct Block {
    uint64_t bytes = 0;
    bool warm = false;  // Of a free one. The rest is of a used one.
    uint64_t asked = 0;
    uint32_t holders = 0;
    bool given_back = false;
  };
  using Blocks = std::map<uint64_t, Block>;  // By offset.

  std::optional<uint64_t> take(uint64_t bytes, bool warm);
  std::optional<uint64_t> take_cold(uint64_t bytes);
  Blocks::const_iterator around(uint64_t offset) const;
  Blocks::iterator insert_free(Blocks::node_type node);
  void cool(Blocks::iterator extent);
  void cool_all();

  const uint64_t warm_bytes_max_;
  const OnPages discard_;
  const OnPages populate_;
  Blocks free_;  // Neighbours of the same warmth are merged.
  Blocks used_;
  uint64_t used_bytes_ = 0;
  uint64_t warm_bytes_ = 0;
};

}  // namespace tutti::client

// Who uses which part of the segment's arena. Bookkeeping only: it holds offsets, touches no memory
// and takes no lock.
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
  // The block that holds all of [offset, offset + bytes) gets one more holder; its start is
  // returned. nullopt: no block does.
  std::optional<uint64_t> hold(uint64_t offset, uint64_t bytes);
  // The block is free once its last holder releases it.
  void release(uint64_t block);
  // The release by the block's first holder, who may do so once. False: not a block's start, or
  // given back already.
  bool give_back(uint64_t block);

  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t warm_bytes() const { return warm_bytes_; }

 private:
  struct Used {
    uint64_t bytes = 0;
    uint32_t holders = 0;
    bool given_back = false;
  };
  struct Free {
    uint64_t bytes = 0;
    bool warm = false;
  };
  using FreeMap = std::map<uint64_t, Free>;

  std::optional<uint64_t> take(uint64_t bytes, bool warm);
  std::optional<uint64_t> take_cold(uint64_t bytes);
  FreeMap::iterator insert_free(uint64_t offset, Free extent);
  void cool(FreeMap::iterator extent);
  void cool_all();

  const uint64_t warm_bytes_max_;
  const OnPages discard_;
  const OnPages populate_;
  FreeMap free_;  // By offset; neighbours of the same warmth are merged.
  std::map<uint64_t, Used> used_;
  uint64_t used_bytes_ = 0;
  uint64_t warm_bytes_ = 0;
};

}  // namespace tutti::client

// The shared memory of one trainer: one sealed memfd, mapped by the trainer, its worker and the
// other ranks of its host.
//
//   0        SegmentHeader   what this is
//   4096     the arena       tensors and staging; its inside is the trainer's alone to arrange
//
// The file is sparse and sealed against shrinking, growing and further seals: its size never
// changes, pages appear when touched. Offsets only, never pointers. Requests lie on the board
// (proto/board.h). The worker trusts nothing here; a trainer may only harm its own job's tensors.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti {

inline constexpr uint32_t kSegmentMagic = 0x49545554;  // "TUTI"
// Raised with any change to this file, to board.h or to session.proto. Both sides refuse another's
// version.
inline constexpr uint32_t kProtocolVersion = 4;
inline constexpr uint64_t kArenaOffset = 4096;

struct SegmentHeader {
  uint32_t magic;
  uint32_t version;
  uint64_t bytes;         // Of the whole file.
  uint64_t arena_offset;  // kArenaOffset.
  uint64_t arena_bytes;
  // Set before the trainer closes its socket on purpose: an end of file without it is a death.
  alignas(64) std::atomic<uint32_t> leaving;
};
static_assert(sizeof(SegmentHeader) <= kArenaOffset);

constexpr bool in_arena(uint64_t offset, uint64_t bytes, uint64_t segment_bytes) {
  return offset >= kArenaOffset && offset <= segment_bytes && bytes <= segment_bytes - offset;
}

}  // namespace tutti

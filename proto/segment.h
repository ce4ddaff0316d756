// The layout of a segment: one rank's shared memory for tensors. It is a sealed memfd that the
// rank, its worker and the other ranks of the host map.
//
//   0        SegmentHeader   identification
//   4096     the arena       tensors and windows, allocated by the rank alone
//
// The file is sparse and sealed against shrinking, growing and further seals: its size never
// changes, and pages appear when touched. It holds offsets, never pointers. Requests are on the
// board (proto/board.h). The worker trusts nothing it reads here; a rank can only damage tensors of
// its own job.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti {

inline constexpr uint32_t kSegmentMagic = 0x49545554;  // "TUTI"
// Raised with any change to this file, to board.h, to recorder.h or to session.proto, and with one
// to mesh.proto that others would misread. Client, worker and coordinator refuse any other version.
inline constexpr uint32_t kProtocolVersion = 16;
inline constexpr uint64_t kArenaOffset = 4096;

struct SegmentHeader {
  uint32_t magic;
  uint32_t version;
  uint64_t bytes;         // Of the whole file.
  uint64_t arena_offset;  // kArenaOffset.
  uint64_t arena_bytes;
  // 1: the rank closes its socket on purpose. End of file on the socket while this is 0 means that
  // the rank died.
  alignas(64) std::atomic<uint32_t> leaving;
};
static_assert(sizeof(SegmentHeader) <= kArenaOffset);

// Whether [offset, offset + bytes) is within the arena of a segment of `segment_bytes`.
constexpr bool in_arena(uint64_t offset, uint64_t bytes, uint64_t segment_bytes) {
  return offset >= kArenaOffset && offset <= segment_bytes && bytes <= segment_bytes - offset;
}

}  // namespace tutti

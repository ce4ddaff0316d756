// The shared memory between one trainer and its worker: one sealed memfd, mapped by both.
//
//   0        SegmentHeader   what this is, where the rest lies; ring positions, one cache line each
//   4096     Request[256]    the trainer writes at `head`, the worker reads at `tail`
//   20480    Completion[256] one per slot; the worker writes, or, on `state` alone, another rank of
//                           the host; the trainer waits on `state` (futex)
//   arena_   the arena       tensors and staging; its inside is the trainer's alone to arrange
//   offset
//
// The file is sparse and sealed against shrinking, growing and further seals: its size never
// changes, pages appear when touched. Offsets only, never pointers. The worker trusts nothing here:
// it copies a request out once, checks the copy and uses the copy. A trainer may only harm its own
// tensors.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti {

inline constexpr uint32_t kSegmentMagic = 0x49545554;  // "TUTI"
// Raised with any change to this file or to session.proto. Both sides refuse another's version.
inline constexpr uint32_t kProtocolVersion = 3;
inline constexpr uint32_t kRingSlots = 256;
inline constexpr uint64_t kRequestsOffset = 4096;
inline constexpr uint64_t kCompletionsOffset = 20480;
inline constexpr uint64_t kArenaOffset = 256 * 1024;
inline constexpr size_t kMessageBytes = 448;
inline constexpr size_t kHostBytes = 48;

// Request::verb: a collective's number (tutti_collective) or one of these.
inline constexpr uint8_t kVerbSubgroup =
    64;  // in_offset: `count` u32 ranks; the completion's value: group.

// Request::strategy_*: kind in the low 8 bits, arity in the upper 24.
constexpr uint32_t pack_strategy(uint32_t kind, uint32_t arity) { return kind | arity << 8; }

// Request::layout of a list of tensors that travel in one or more requests: how many they are, and
// a hash of their counts. 0: a single tensor.
constexpr uint64_t pack_layout(uint64_t tensors, uint64_t hash) {
  return tensors << 40 | (hash & ((uint64_t{1} << 40) - 1));
}
constexpr uint64_t tensors_of_layout(uint64_t layout) { return layout >> 40; }

struct Request {
  uint32_t slot;             // The completion to fill.
  uint8_t verb;              // tutti_collective, or kVerb*.
  uint8_t dtype;             // tutti_dtype.
  uint8_t op;                // tutti_op.
  uint8_t reserved_byte;     // 0.
  uint32_t group;            // 0: the whole job; else what kVerbSubgroup answered.
  uint32_t root;             // Rank within the group; 0 where the collective has none.
  uint64_t count;            // Elements of one rank's input (reduce_scatter: of its output).
  uint64_t in_offset;        // From the segment's start. Unused sides are 0.
  uint64_t out_offset;       // May equal in_offset (in place).
  uint32_t timeout_ms;       // 0: the worker's default.
  uint32_t local_strategy;   // pack_strategy(); 0: auto.
  uint32_t global_strategy;  //
  uint32_t following;        // Requests of the same list that come after this one.
  uint64_t layout;           // pack_layout(); must be the same on all ranks.
};
static_assert(sizeof(Request) == 64);
static_assert(offsetof(Request, count) == 16 && offsetof(Request, timeout_ms) == 40);

// `asleep`: pending, and the trainer sleeps on it: who completes it must wake it. `done`: by the
// worker. `folded`: by the ranks themselves, as proto/board.h says; that is OK and sets no more.
enum class SlotState : uint32_t { free = 0, pending = 1, done = 2, asleep = 3, folded = 4 };

// Completion::state: a SlotState and a tag, which is 0 but for what has a number on the board.
inline constexpr uint32_t kSlotStateBits = 3;
constexpr uint32_t slot_word(SlotState state, uint32_t tag = 0) {
  return tag << kSlotStateBits | static_cast<uint32_t>(state);
}
constexpr SlotState state_of(uint32_t slot_word) {
  return static_cast<SlotState>(slot_word & ((1u << kSlotStateBits) - 1));
}

struct Completion {
  std::atomic<uint32_t>
      state;             // slot_word(). free -> pending (-> asleep) -> done or folded -> free.
  int32_t code;          // tutti_code.
  int32_t culprit_rank;  // -1: nobody in particular.
  uint32_t value;        // kVerbSubgroup: the new group's number.
  char culprit_host[kHostBytes];
  char message[kMessageBytes];  // NUL-terminated, cut where too long.
};
static_assert(sizeof(Completion) == 512);

struct SegmentHeader {
  uint32_t magic;
  uint32_t version;
  uint64_t bytes;         // Of the whole file.
  uint64_t arena_offset;  // kArenaOffset.
  uint64_t arena_bytes;
  char reserved0[32];
  alignas(64) std::atomic<uint32_t> head;  // Requests ever published; the trainer writes.
  alignas(64) std::atomic<uint32_t> tail;  // Requests ever taken; the worker writes.
  // Set before the trainer closes its socket on purpose: an end of file without it is a death.
  alignas(64) std::atomic<uint32_t> leaving;
  char reserved1[60];
};
static_assert(sizeof(SegmentHeader) == 256);
static_assert(kRequestsOffset + kRingSlots * sizeof(Request) == kCompletionsOffset);
static_assert(kCompletionsOffset + kRingSlots * sizeof(Completion) <= kArenaOffset);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace tutti

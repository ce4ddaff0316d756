// The memory that all ranks of a job on one host share: where they meet without their worker.
//
// Every operation of the whole job's group has a number, by which each rank counts alike, and a
// place here: slot number % kBoardSlots, turn number / kBoardSlots. A rank writes its entry, then
// arrives by setting its bit. The last to arrive compares the entries; where all agree the ranks
// fold the tensors themselves, block by block, and whoever finishes the last block marks every
// rank's completion as folded.
//
//   open ──last arrival, entries agree──> folding ──last block──> ending ──> open, next turn
//     │                                      └──────worker──────> failing ─> open, next turn
//     └────anybody, at any time─────────> diverted ──worker────────────────> open, next turn
//
// Diverted: the worker takes over who has arrived, and whoever comes later goes to the worker by
// its own ring. Whatever is out of the ordinary (ranks that disagree, wait for long, die, or ask
// for what only the engine does) is diverted, so the worker alone decides what goes wrong, and for
// whom.
//
// One sealed memfd; every rank maps it and the segments of all others. Those who share it trust
// each other as threads do; the worker trusts nothing here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/segment.h"

namespace tutti {

inline constexpr uint32_t kBoardMagic = 0x44524f42;  // "BORD"
// A host with more ranks than that does without a board: their bits share a word.
inline constexpr uint32_t kBoardRanks = 32;
// That ride along with a welcome: the segment, the doorbell; with a board that, and every segment.
inline constexpr uint32_t kWelcomeDescriptors = 3 + kBoardRanks;
// Operations a rank may be ahead of another; past them the worker takes over.
inline constexpr uint32_t kBoardSlots = 64;
inline constexpr uint64_t kBoardSlotsOffset = 8192;
// Blocks of a staged tensor under way: see BoardEntry::ready.
inline constexpr uint32_t kStageBlocks = 8;
// Bytes of a rank's tensor that are folded in one go.
inline constexpr uint64_t kBoardBlockBytes = 128 * 1024;

// ---- BoardSlot::word: phase, turn and who has arrived, changed as one ----

// `ending`: all is folded, and the completions are being filled, by any rank that finds it so: who
// began may have died or stopped. `failing`: the worker fills them, alone.
enum class BoardPhase : uint32_t { open = 0, folding = 1, diverted = 2, ending = 3, failing = 4 };

inline constexpr uint32_t kPhaseBits = 3;
inline constexpr uint32_t kTurnBits = 32 - kPhaseBits;
inline constexpr uint32_t kTurnMask = (1u << kTurnBits) - 1;

constexpr uint64_t board_word(uint32_t turn, BoardPhase phase, uint32_t arrived) {
  return uint64_t{arrived} | uint64_t{static_cast<uint32_t>(phase)} << 32 |
         uint64_t{turn & kTurnMask} << (32 + kPhaseBits);
}
constexpr uint32_t arrived_of(uint64_t word) { return static_cast<uint32_t>(word); }
constexpr BoardPhase phase_of(uint64_t word) {
  return static_cast<BoardPhase>(word >> 32 & ((1u << kPhaseBits) - 1));
}
constexpr uint32_t turn_of(uint64_t word) {
  return static_cast<uint32_t>(word >> (32 + kPhaseBits));
}
// How many turns `turn` is ahead of `other`; turns wrap.
constexpr int32_t turns_ahead(uint32_t turn, uint32_t other) {
  return static_cast<int32_t>((turn - other) << kPhaseBits) >> kPhaseBits;
}
constexpr uint32_t turn_at(uint64_t number) {
  return static_cast<uint32_t>(number / kBoardSlots) & kTurnMask;
}

// ---- Completion::state of an operation of that number ----

// Whoever was stopped in the middle of completing one, and goes on, finds another tag there, and so
// completes no later operation, nor what the worker was asked for: the tag is never 0.
constexpr uint32_t board_slot_word(SlotState state, uint64_t number) {
  return slot_word(state, static_cast<uint32_t>(number << 1 | 1));
}

// ---- A count of blocks that belongs to one turn ----

constexpr uint64_t board_count(uint32_t turn, uint32_t blocks) {
  return uint64_t{turn} << 32 | blocks;
}
constexpr uint32_t blocks_of(uint64_t count) { return static_cast<uint32_t>(count); }
constexpr bool is_of_turn(uint64_t count, uint32_t turn) {
  return static_cast<uint32_t>(count >> 32) == turn;
}

// Blocks of `count` elements of `element_bytes`.
constexpr uint64_t board_blocks(uint64_t count, uint64_t element_bytes) {
  const uint64_t elements = kBoardBlockBytes / element_bytes;
  return count / elements + (count % elements != 0 ? 1 : 0);
}

// BoardEntry::flags.
inline constexpr uint32_t kBoardBlocking = 1;  // The rank waits: it will take part in the folding.
// The rank's tensor is ordinary memory that passes through kStageBlocks blocks of its segment, at
// in_offset; a block is used again when it is folded and copied out. Implies kBoardBlocking. The
// worker does not take such an entry over: the rank asks again by its ring.
inline constexpr uint32_t kBoardStaged = 2;

struct BoardEntry {
  Request request;
  int64_t started_ns;  // CLOCK_MONOTONIC, when the operation was asked for.
  uint32_t ring_head;  // How many requests the rank had published by its ring before.
  uint32_t flags;
  // Blocks this rank is ready for: they are copied in, and what lay in their place is copied out.
  alignas(64) std::atomic<uint32_t> ready;
  // The block it is folding, and one; 0: none. Whoever arrives last, or folds the last block, holds
  // until it is through with the operation: so all can tell whether it died, or stopped, half way.
  std::atomic<uint32_t> holding;
};
static_assert(sizeof(BoardEntry) == 192);

struct BoardSlot {
  alignas(64) std::atomic<uint64_t> word;
  alignas(64) std::atomic<uint64_t> claimed;  // board_count: blocks somebody folds or has folded.
  alignas(64) std::atomic<uint64_t> folded;   // board_count.
  // board_count of the turn and 1: somebody waits for it past its deadline. The worker clears it.
  std::atomic<uint64_t> overdue;
  // board_count of turn and block + 1, at block % kStageBlocks: that block is folded.
  alignas(64) std::atomic<uint64_t> marks[kStageBlocks];
  BoardEntry entries[kBoardRanks];
};
static_assert(sizeof(BoardSlot) == 256 + kBoardRanks * sizeof(BoardEntry));

// One cache line a rank, written by it alone.
struct BoardRank {
  alignas(64) std::atomic<uint64_t> operations;  // That ended OK on the board.
  std::atomic<uint64_t> bytes;                   // Of those operations' tensors.
  std::atomic<uint64_t> passed;  // The highest number it did not bring to the board, and one.
};

struct BoardHeader {
  uint32_t magic;
  uint32_t version;  // kProtocolVersion.
  uint32_t ranks;
  // 0: the worker wants everything diverted (a rank is gone, the job's strategy is not the
  // board's).
  alignas(64) std::atomic<uint32_t> in_use;
  alignas(64) std::atomic<uint32_t> calls;  // Slots diverted or overdue, ever: the worker looks
                                            // when it moved.
  BoardRank figures[kBoardRanks];
};
static_assert(sizeof(BoardHeader) <= kBoardSlotsOffset);
inline constexpr uint64_t kBoardBytes = kBoardSlotsOffset + kBoardSlots * sizeof(BoardSlot);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace tutti

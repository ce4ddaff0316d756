// A slot's word and its counts of blocks: their layout, and the pure functions that change them.
#pragma once

#include <cstdint>

#include "proto/board.h"

namespace tutti::board {

enum class Phase : uint32_t {
  open = 0,     // Some members have not arrived.
  called = 1,   // The worker decides; members may still arrive.
  folding = 2,  // All arrived and agree.
  done = 3,     // The verdict is OK.
  failed = 4,   // The verdict is the slot's BoardFailure.
};

struct SlotWord {
  uint32_t generation = 0;
  Phase phase = Phase::open;
  bool asleep = false;  // A rank sleeps on the low half; the end of the phase must wake all.
  uint32_t arrived = 0;
  // Counts the wake-ups that leave the phase as it is: a rank that read the word before one must
  // not fall asleep on it, even where another rank sets `asleep` again.
  uint32_t wakes = 0;
  bool operator==(const SlotWord&) const = default;
};

constexpr uint64_t pack(const SlotWord& word) {
  return uint64_t{word.generation} << 32 | uint64_t{word.wakes & 0x7f} << 25 |
         uint64_t{word.asleep} << 24 | uint64_t{static_cast<uint32_t>(word.phase) & 0xff} << 16 |
         (word.arrived & 0xffff);
}
constexpr SlotWord unpack(uint64_t bits) {
  return {static_cast<uint32_t>(bits >> 32), static_cast<Phase>(bits >> 16 & 0xff),
          (bits >> 24 & 1) != 0, static_cast<uint32_t>(bits & 0xffff),
          static_cast<uint32_t>(bits >> 25 & 0x7f)};
}
constexpr bool is_over(Phase phase) { return phase == Phase::done || phase == Phase::failed; }
constexpr bool may_arrive(Phase phase) { return phase == Phase::open || phase == Phase::called; }

// A count of blocks that belongs to one generation.
struct Count {
  uint32_t generation = 0;
  uint32_t blocks = 0;
  bool operator==(const Count&) const = default;
};
inline constexpr uint32_t kNoMoreBlocks = 0x7fffffff;  // Claimed: no more claims.
inline constexpr uint32_t kBlocksMax = kNoMoreBlocks - 1;
constexpr uint64_t pack(const Count& count) {
  return uint64_t{count.generation} << 32 | count.blocks;
}
constexpr Count unpack_count(uint64_t bits) {
  return {static_cast<uint32_t>(bits >> 32), static_cast<uint32_t>(bits)};
}

// ---- The changes of a word ----

// A slot's next generation; all members must have settled the one before.
constexpr SlotWord reopened(uint32_t generation) { return {generation, Phase::open, false, 0}; }
// Another member has arrived; the last one decides the next phase.
constexpr SlotWord with_arrival(SlotWord word, Phase next) {
  ++word.arrived;
  word.asleep &= next == word.phase;
  word.phase = next;
  return word;
}
constexpr SlotWord with_sleeper(SlotWord word) {
  word.asleep = true;
  return word;
}
constexpr SlotWord called(SlotWord word) {
  word.phase = Phase::called;
  return word;
}
constexpr SlotWord ended(SlotWord word, Phase verdict) {
  word.phase = verdict;
  word.asleep = false;
  return word;
}
// Counts the members whose arrivals are stored, but who have not counted themselves yet.
constexpr SlotWord resumed(SlotWord word, uint32_t members) {
  word.phase = Phase::folding;
  word.asleep = false;
  word.arrived = members;
  return word;
}

// ---- What follows when the last member has arrived ----

struct Decision {
  Phase next = Phase::called;  // called, folding, or done where there is nothing to fold.
  uint32_t blocks = 0;
  bool alone = false;  // The last member to arrive folds all blocks by itself.
};

// A slot serves operation N in generation N / slots + 1. Fresh memory is zero: in every slot
// generation 0 is over and settled, and has no blocks.
constexpr uint32_t generation_of(uint64_t number, uint32_t slots = kBoardSlots) {
  return static_cast<uint32_t>(number / slots + 1);
}
// Operations of one group: from this number on, generations would wrap. At a million operations a
// second that takes twelve days.
inline constexpr uint64_t kNumbersMax = uint64_t{UINT32_MAX} * kBoardSlots;
constexpr bool is_before(uint32_t generation, uint32_t other) {
  return static_cast<int32_t>(generation - other) < 0;
}
// The operation that a slot serves in a generation; not for generation 0.
constexpr uint64_t number_of(uint32_t generation, uint32_t slot, uint32_t slots = kBoardSlots) {
  return uint64_t{generation - 1} * slots + slot;
}

// One member of an operation.
struct Participant {
  uint64_t number = 0;
  uint32_t slots = kBoardSlots;
  uint32_t local_rank = 0;
  uint32_t members = 0;

  uint32_t generation() const { return generation_of(number, slots); }
};

enum class Step { more, end };

// Runs a procedure to its end.
template <class Procedure, class Memory>
const Procedure& run(Procedure& procedure, Memory& memory) {
  while (procedure.step(memory) == Step::more) {
  }
  return procedure;
}

}  // namespace tutti::board

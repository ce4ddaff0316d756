// Folds of operations among hosts, which the worker shares with the ranks that wait: each is a
// SharedFold of proto/board.h with a word of its own.
//
//   free ──published──> ready ──claimed by a rank──> held ──folded──> done ──collected──> free
//                       ready ──taken back by the worker──> free
//
// Only the holder of a fold touches its memory. The worker publishes a fold once all that it reads
// is there, and ends an operation only when no live rank holds one of its folds. A fold that was
// not claimed can be taken back at any moment; so can, by any rank, those of a dead worker.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "daemon/board/arrival.h"
#include "daemon/board/matched_op.h"
#include "daemon/board/passing.h"

namespace tutti::board {

enum class FoldState : uint32_t { free = 0, ready = 1, held = 2, done = 3 };

struct FoldWord {
  FoldState state = FoldState::free;
  uint32_t holder = 0;  // Local rank, where held.
  uint32_t area = 0;    // With the slot: of the operation.
  uint32_t slot = 0;

  bool operator==(const FoldWord&) const = default;
  bool is_of(const FoldWord& other) const { return area == other.area && slot == other.slot; }
};
constexpr uint64_t pack(const FoldWord& word) {
  return uint64_t{word.area & 0xffff} << 48 | uint64_t{word.slot & 0xffff} << 32 |
         uint64_t{word.holder & 0xffff} << 16 | (static_cast<uint32_t>(word.state) & 0xffff);
}
constexpr FoldWord unpack_fold(uint64_t bits) {
  return {static_cast<FoldState>(bits & 0xffff), static_cast<uint32_t>(bits >> 16 & 0xffff),
          static_cast<uint32_t>(bits >> 48), static_cast<uint32_t>(bits >> 32 & 0xffff)};
}

// Claims a fold of the operation that is ready. The claimer must do it and run FinishFold.
template <class Memory>
class ClaimFold {
 public:
  ClaimFold(uint32_t /*generation*/, uint32_t local_rank, const FoldWord& op)
      : held_{FoldState::held, local_rank, op.area, op.slot} {}
  bool claimed() const { return claimed_; }
  uint32_t index() const { return index_; }

  Step step(Memory& memory) {
    switch (state_) {
      case State::top:
        top_ = std::min(memory.load_top(), kSharedFolds);
        state_ = State::load;
        return top_ == 0 ? Step::end : Step::more;
      case State::load:
        word_ = memory.load_fold(index_);
        if (unpack_fold(word_).state != FoldState::ready || !unpack_fold(word_).is_of(held_))
          return next();
        state_ = State::exchange;
        return Step::more;
      case State::exchange:
        claimed_ = memory.exchange_fold(index_, word_, pack(held_));
        state_ = State::load;
        return claimed_ ? Step::end : next();
    }
    return Step::end;
  }

 private:
  enum class State { top, load, exchange };
  Step next() { return ++index_ == top_ ? Step::end : Step::more; }

  FoldWord held_;
  State state_ = State::top;
  uint32_t top_ = 0;
  uint32_t index_ = 0;
  uint64_t word_ = 0;
  bool claimed_ = false;
};

// Counts a block of a fold as done or taken back. The worker may have collected the fold before,
// and use the count for another one.
template <class Memory>
class CountBlock {
 public:
  // `first`, `number`: of the block's FoldHead.
  CountBlock(uint32_t first, uint32_t number) : first_(first), number_(number) {}
  bool is_last() const { return is_last_; }

  Step step(Memory& memory) {
    if (!loaded_) {
      left_ = memory.load_left(first_);
      loaded_ = true;
      return is_counted() ? Step::more : Step::end;
    }
    const Count left = unpack_count(left_);
    if (!memory.exchange_left(first_, left_, pack(Count{number_, left.blocks - 1})))
      return is_counted() ? Step::more : Step::end;
    is_last_ = left.blocks == 1;
    return Step::end;
  }

 private:
  bool is_counted() const {
    const Count left = unpack_count(left_);
    return left.generation == number_ && left.blocks != 0;
  }

  uint32_t first_;
  uint32_t number_;
  bool loaded_ = false;
  uint64_t left_ = 0;
  bool is_last_ = false;
};

// Marks a held block as done, counts it, and calls the worker with the last one of the fold.
template <class Memory>
class FinishFold {
 public:
  FinishFold(uint32_t generation, uint32_t index, const FoldWord& held, uint32_t first,
             uint32_t number)
      : index_(index), held_(held), count_(first, number), call_(generation) {}

  Step step(Memory& memory) {
    switch (state_) {
      case State::done: {
        const FoldWord done{FoldState::done, 0, held_.area, held_.slot};
        uint64_t seen = pack(held_);
        memory.exchange_fold(index_, seen, pack(done));
        state_ = State::count;
        return Step::more;
      }
      case State::count:
        if (count_.step(memory) == Step::more) return Step::more;
        state_ = State::call;
        return count_.is_last() ? Step::more : Step::end;
      case State::call:
        return call_.step(memory);
    }
    return Step::end;
  }

 private:
  enum class State { done, count, call };

  uint32_t index_;
  FoldWord held_;
  State state_ = State::done;
  CountBlock<Memory> count_;
  CallWorker<Memory> call_;
};

// Takes a block back that nobody has claimed, and counts it: a rank that does another one must know
// that it does the last. A rank whose worker is dead gives 0 as `number`, and counts nothing.
template <class Memory>
class TakeFoldBack {
 public:
  TakeFoldBack(uint32_t /*generation*/, uint32_t index, const FoldWord& op, uint32_t first,
               uint32_t number)
      : index_(index), ready_{FoldState::ready, 0, op.area, op.slot}, count_(first, number) {}
  bool taken() const { return taken_; }
  // Where it was not taken: the fold as it is.
  const FoldWord& seen() const { return seen_; }

  Step step(Memory& memory) {
    if (taken_) return count_.step(memory);
    uint64_t seen = pack(ready_);
    taken_ = memory.exchange_fold(index_, seen, pack(FoldWord{}));
    seen_ = unpack_fold(seen);
    return taken_ ? Step::more : Step::end;
  }

 private:
  uint32_t index_;
  FoldWord ready_;
  FoldWord seen_;
  bool taken_ = false;
  CountBlock<Memory> count_;
};

// Announces that `count` folds of the operation have been published, all of which are ready or
// claimed by now, and wakes the ranks that sleep.
template <class Memory>
class AnnounceFolds {
 public:
  AnnounceFolds(uint32_t generation, uint32_t count)
      : shared_{generation, count}, wake_(generation) {}
  bool must_wake() const { return wake_.must_wake(); }

  Step step(Memory& memory) {
    if (stored_) return wake_.step(memory);
    memory.store_shared(pack(shared_));
    stored_ = true;
    return Step::more;
  }

 private:
  Count shared_;
  bool stored_ = false;
  WakeSleepers<Memory> wake_;
};

// Where the fold's values lie as mapped in this process.
struct FoldMemory {
  std::span<const SegmentView> segments;  // By local rank.
  SegmentView wire;
};

// Whether a fold is one that kernels can do, wherever its values lie.
bool is_sound(const FoldHead& fold);

// Does a fold. `places`: of its sources, then of its targets; they may change meanwhile. Touches no
// memory but that of `memory`. False: the fold is not sound, or has values elsewhere; nothing was
// written. Needs no memory.
bool run_shared(const FoldHead& fold, const uint64_t* places, const FoldMemory& memory,
                Kernel kernel);

// The other direction, for the worker: where an address lies. kNowhere: in no memory of the board.
uint64_t place_of(const void* at, uint64_t bytes, const FoldMemory& memory);

}  // namespace tutti::board

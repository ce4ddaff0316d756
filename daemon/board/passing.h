// The procedures of windows, through which tensors in ordinary memory pass on their way to other
// hosts: a rank fills its window block by block, the worker publishes how many blocks hold results,
// and the rank sleeps while it can do neither.
#pragma once

#include "daemon/board/arrival.h"

namespace tutti::board {

// Publishes how many blocks of its tensor the rank has written to its window. Calls the worker
// where `tells` and the worker has the operation already.
template <class Memory>
class FillWindow {
 public:
  FillWindow(uint32_t generation, uint32_t local_rank, uint32_t blocks, bool tells)
      : generation_(generation),
        local_rank_(local_rank),
        blocks_(blocks),
        tells_(tells),
        call_(generation) {}

  Step step(Memory& memory) {
    switch (state_) {
      case State::store:
        memory.store_ready(local_rank_, blocks_);
        state_ = State::load;
        return tells_ ? Step::more : Step::end;
      case State::load: {
        const SlotWord word = unpack(memory.load_word());
        state_ = State::call;
        return word.generation == generation_ && word.phase == Phase::called ? Step::more
                                                                             : Step::end;
      }
      case State::call:
        return call_.step(memory);
    }
    return Step::end;
  }

 private:
  enum class State { store, load, call };

  uint32_t generation_;
  uint32_t local_rank_;
  uint32_t blocks_;
  bool tells_;
  State state_ = State::store;
  CallWorker<Memory> call_;
};

// Wakes the ranks that sleep on an operation which goes on. It changes the word's count of
// wake-ups, so that a rank that read the word before does not fall asleep on it.
template <class Memory>
class WakeSleepers {
 public:
  explicit WakeSleepers(uint32_t generation) : generation_(generation) {}
  bool must_wake() const { return must_wake_; }

  Step step(Memory& memory) {
    if (!loaded_) {
      word_ = unpack(memory.load_word());
      loaded_ = true;
      return sleeps() ? Step::more : Step::end;
    }
    uint64_t seen = pack(word_);
    SlotWord awake = word_;
    awake.asleep = false;
    awake.wakes = (word_.wakes + 1) & 0x7f;
    must_wake_ = memory.exchange_word(seen, pack(awake));
    if (must_wake_) return Step::end;
    word_ = unpack(seen);
    return sleeps() ? Step::more : Step::end;
  }

 private:
  bool sleeps() const {
    return word_.generation == generation_ && !is_over(word_.phase) && word_.asleep;
  }

  uint32_t generation_;
  bool loaded_ = false;
  SlotWord word_;
  bool must_wake_ = false;
};

// Publishes that the results of the first `blocks` are in every window, or in the one that ranks
// have in common, and wakes the ranks that sleep.
template <class Memory>
class ReleaseWindow {
 public:
  ReleaseWindow(uint32_t generation, uint32_t blocks)
      : passed_{generation, blocks}, wake_(generation) {}
  bool must_wake() const { return wake_.must_wake(); }

  Step step(Memory& memory) {
    if (stored_) return wake_.step(memory);
    memory.store_passed(pack(passed_));
    stored_ = true;
    return Step::more;
  }

 private:
  Count passed_;
  bool stored_ = false;
  WakeSleepers<Memory> wake_;
};

// Prepares a rank to sleep until the word changes. It may not where more than `taken` blocks hold
// results, or the worker has published more than `tried` shared folds.
template <class Memory>
class PrepareSleep {
 public:
  PrepareSleep(uint32_t generation, uint32_t taken, uint32_t tried)
      : generation_(generation), taken_(taken), tried_(tried) {}
  // Whether the rank may sleep, while the word is word().
  bool may_sleep() const { return may_sleep_; }
  uint64_t word() const { return pack(word_); }

  Step step(Memory& memory) {
    switch (state_) {
      case State::load:
        word_ = unpack(memory.load_word());
        state_ = State::exchange;
        return word_.generation != generation_ || is_over(word_.phase) ? Step::end : Step::more;
      case State::exchange: {
        uint64_t seen = pack(word_);
        word_ = with_sleeper(word_);
        state_ = State::passed;
        return seen == pack(word_) || memory.exchange_word(seen, pack(word_)) ? Step::more
                                                                              : Step::end;
      }
      case State::passed:
        state_ = State::shared;
        return is_at_most(memory.load_passed(), taken_) ? Step::more : Step::end;
      case State::shared:
        may_sleep_ = is_at_most(memory.load_shared(), tried_);
        return Step::end;
    }
    return Step::end;
  }

 private:
  enum class State { load, exchange, passed, shared };
  bool is_at_most(uint64_t loaded, uint32_t blocks) const {
    const Count count = unpack_count(loaded);
    return count.generation != generation_ || count.blocks <= blocks;
  }

  uint32_t generation_;
  uint32_t taken_;
  uint32_t tried_;
  State state_ = State::load;
  SlotWord word_;
  bool may_sleep_ = false;
};

}  // namespace tutti::board

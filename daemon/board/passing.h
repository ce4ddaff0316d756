// Tensors of ordinary memory that pass through windows on their way to other hosts: a rank fills a
// window block by block, the worker uses it and says how far it is through.
#pragma once

#include "daemon/board/arrival.h"

namespace tutti::board {

// A rank's window holds one more block. The worker is called where the operation has begun and
// `tells`: else it looks when it begins.
template <class Memory>
class FillWindow {
 public:
  FillWindow(uint32_t turn, uint32_t seat, uint32_t blocks, bool tells)
      : turn_(turn), seat_(seat), blocks_(blocks), tells_(tells), call_(turn) {}

  Step step(Memory& memory) {
    switch (state_) {
      case State::store:
        memory.store_ready(seat_, blocks_);
        state_ = State::load;
        return tells_ ? Step::more : Step::end;
      case State::load: {
        const SlotWord word = unpack(memory.load_word());
        state_ = State::call;
        return word.turn == turn_ && word.phase == Phase::called ? Step::more : Step::end;
      }
      case State::call:
        return call_.step(memory);
    }
    return Step::end;
  }

 private:
  enum class State { store, load, call };

  uint32_t turn_;
  uint32_t seat_;
  uint32_t blocks_;
  bool tells_;
  State state_ = State::store;
  CallWorker<Memory> call_;
};

// The worker is through with so many blocks of every window. Who sleeps is woken: the word changes
// for good, so nobody who looked before falls asleep on it.
template <class Memory>
class ReleaseWindow {
 public:
  ReleaseWindow(uint32_t turn, uint32_t blocks) : turn_(turn), blocks_(blocks) {}
  bool must_wake() const { return must_wake_; }

  Step step(Memory& memory) {
    switch (state_) {
      case State::store:
        memory.store_passed(pack(Count{turn_, blocks_}));
        state_ = State::load;
        return Step::more;
      case State::load:
        word_ = unpack(memory.load_word());
        state_ = State::exchange;
        return sleeps() ? Step::more : Step::end;
      case State::exchange: {
        uint64_t seen = pack(word_);
        SlotWord awake = word_;
        awake.asleep = false;
        awake.wakes = (word_.wakes + 1) & 0x7f;
        must_wake_ = memory.exchange_word(seen, pack(awake));
        if (must_wake_) return Step::end;
        word_ = unpack(seen);
        return sleeps() ? Step::more : Step::end;
      }
    }
    return Step::end;
  }

 private:
  enum class State { store, load, exchange };
  bool sleeps() const { return word_.turn == turn_ && !is_over(word_.phase) && word_.asleep; }

  uint32_t turn_;
  uint32_t blocks_;
  State state_ = State::store;
  SlotWord word_;
  bool must_wake_ = false;
};

// A rank wants to sleep until the word changes, or the worker is through with more than `taken`
// blocks.
template <class Memory>
class PrepareSleep {
 public:
  PrepareSleep(uint32_t turn, uint32_t taken) : turn_(turn), taken_(taken) {}
  // It may sleep while the word is this.
  bool may_sleep() const { return may_sleep_; }
  uint64_t word() const { return pack(word_); }

  Step step(Memory& memory) {
    switch (state_) {
      case State::load:
        word_ = unpack(memory.load_word());
        state_ = State::exchange;
        return word_.turn != turn_ || is_over(word_.phase) ? Step::end : Step::more;
      case State::exchange: {
        uint64_t seen = pack(word_);
        word_ = with_sleeper(word_);
        state_ = State::passed;
        return seen == pack(word_) || memory.exchange_word(seen, pack(word_)) ? Step::more
                                                                              : Step::end;
      }
      case State::passed: {
        const Count passed = unpack_count(memory.load_passed());
        may_sleep_ = passed.turn != turn_ || passed.blocks <= taken_;
        return Step::end;
      }
    }
    return Step::end;
  }

 private:
  enum class State { load, exchange, passed };

  uint32_t turn_;
  uint32_t taken_;
  State state_ = State::load;
  SlotWord word_;
  bool may_sleep_ = false;
};

}  // namespace tutti::board

// The worker's procedures: it hands a called operation back to the ranks, stops the claims of one
// that cannot be finished, and ends it. A rank that folds alone uses EndOp as well.
#pragma once

#include "daemon/board/arrival.h"

namespace tutti::board {

// Hands a called operation back to the ranks. All members have arrived and agree.
template <class Memory>
class ResumeFolding {
 public:
  ResumeFolding(uint32_t generation, uint32_t members, const Decision& decision)
      : generation_(generation),
        members_(members),
        decision_(decision),
        layout_(generation, decision.blocks),
        opening_(generation) {}
  bool resumed() const { return resumed_; }
  bool must_wake() const { return must_wake_; }

  Step step(Memory& memory) {
    switch (state_) {
      case State::lay_out:
        if (layout_.step(memory) == Step::end) state_ = State::load;
        return Step::more;
      case State::load:
        word_ = unpack(memory.load_word());
        state_ = State::exchange;
        return may_resume() ? Step::more : Step::end;
      case State::exchange: {
        uint64_t seen = pack(word_);
        SlotWord next = board::resumed(word_, members_);
        next.phase = decision_.next;
        resumed_ = memory.exchange_word(seen, pack(next));
        must_wake_ = word_.asleep;
        if (!resumed_) {
          word_ = unpack(seen);
          return may_resume() ? Step::more : Step::end;
        }
        state_ = State::open_claims;
        return decision_.next == Phase::folding ? Step::more : Step::end;
      }
      case State::open_claims:
        return opening_.step(memory);
    }
    return Step::end;
  }

 private:
  enum class State { lay_out, load, exchange, open_claims };
  bool may_resume() const {
    return word_.generation == generation_ && word_.phase == Phase::called;
  }

  uint32_t generation_;
  uint32_t members_;
  Decision decision_;
  LayOutBlocks<Memory> layout_;
  OpenClaims<Memory> opening_;
  State state_ = State::lay_out;
  SlotWord word_;
  bool resumed_ = false;
  bool must_wake_ = false;
};

// Ends an operation that no rank folds. A failure must be written before; where ranks fold,
// StopClaims and the end of all held blocks come first.
template <class Memory>
class EndOp {
 public:
  EndOp(uint32_t generation, Phase verdict) : generation_(generation), verdict_(verdict) {}
  // False: the operation was over before.
  bool ended() const { return ended_; }
  bool must_wake() const { return must_wake_; }

  Step step(Memory& memory) {
    if (!loaded_) {
      word_ = unpack(memory.load_word());
      loaded_ = true;
      return is_under_way() ? Step::more : Step::end;
    }
    uint64_t seen = pack(word_);
    ended_ = memory.exchange_word(seen, pack(board::ended(word_, verdict_)));
    must_wake_ = word_.asleep;
    if (ended_) return Step::end;
    word_ = unpack(seen);
    return is_under_way() ? Step::more : Step::end;
  }

 private:
  bool is_under_way() const { return word_.generation == generation_ && !is_over(word_.phase); }

  uint32_t generation_;
  Phase verdict_;
  SlotWord word_;
  bool loaded_ = false;
  bool ended_ = false;
  bool must_wake_ = false;
};

// No block of the operation can be claimed afterwards, nor can its claims be opened. Blocks that
// are held are still folded.
template <class Memory>
class StopClaims {
 public:
  explicit StopClaims(uint32_t generation) : generation_(generation) {}

  Step step(Memory& memory) {
    if (!loaded_) {
      claimed_ = memory.load_claimed();
      loaded_ = true;
    } else if (memory.exchange_claimed(claimed_, pack(Count{generation_, kNoMoreBlocks}))) {
      return Step::end;
    }
    return is_before(generation_, unpack_count(claimed_).generation) ? Step::end : Step::more;
  }

 private:
  uint32_t generation_;
  bool loaded_ = false;
  uint64_t claimed_ = 0;
};

}  // namespace tutti::board

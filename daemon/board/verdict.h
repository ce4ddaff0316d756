// What the worker makes of an operation that was called to it, or that must not be folded on.
#pragma once

#include "daemon/board/arrival.h"

namespace tutti::board {

// A called operation whose members all arrived and agree goes back to the ranks.
template <class Memory>
class Resumption {
 public:
  Resumption(uint32_t turn, uint32_t members, const Decision& decision)
      : turn_(turn),
        members_(members),
        decision_(decision),
        layout_(turn, decision.blocks),
        opening_(turn) {}
  bool resumed() const { return resumed_; }
  bool wakes() const { return wakes_; }

  Step step(Memory& memory) {
    switch (at_) {
      case At::lay_out:
        if (layout_.step(memory) == Step::end) at_ = At::load;
        return Step::more;
      case At::load:
        word_ = unpack(memory.load_word());
        at_ = At::exchange;
        return may_resume() ? Step::more : Step::end;
      case At::exchange: {
        uint64_t seen = pack(word_);
        SlotWord next = board::resumed(word_, members_);
        next.phase = decision_.next;
        resumed_ = memory.exchange_word(seen, pack(next));
        wakes_ = word_.asleep;
        if (!resumed_) {
          word_ = unpack(seen);
          return may_resume() ? Step::more : Step::end;
        }
        at_ = At::open_claims;
        return decision_.next == Phase::folding ? Step::more : Step::end;
      }
      case At::open_claims:
        return opening_.step(memory);
    }
    return Step::end;
  }

 private:
  enum class At { lay_out, load, exchange, open_claims };
  bool may_resume() const { return word_.turn == turn_ && word_.phase == Phase::called; }

  uint32_t turn_;
  uint32_t members_;
  Decision decision_;
  Layout<Memory> layout_;
  Opening<Memory> opening_;
  At at_ = At::lay_out;
  SlotWord word_;
  bool resumed_ = false;
  bool wakes_ = false;
};

// Ends an operation that ranks do not fold: the failure is written before. `stop` comes first where
// they do.
template <class Memory>
class Ending {
 public:
  Ending(uint32_t turn, Phase verdict) : turn_(turn), verdict_(verdict) {}
  // False: it was over before.
  bool ended() const { return ended_; }
  bool wakes() const { return wakes_; }

  Step step(Memory& memory) {
    if (!loaded_) {
      word_ = unpack(memory.load_word());
      loaded_ = true;
      return is_under_way() ? Step::more : Step::end;
    }
    uint64_t seen = pack(word_);
    ended_ = memory.exchange_word(seen, pack(board::ended(word_, verdict_)));
    wakes_ = word_.asleep;
    if (ended_) return Step::end;
    word_ = unpack(seen);
    return is_under_way() ? Step::more : Step::end;
  }

 private:
  bool is_under_way() const { return word_.turn == turn_ && !is_over(word_.phase); }

  uint32_t turn_;
  Phase verdict_;
  SlotWord word_;
  bool loaded_ = false;
  bool ended_ = false;
  bool wakes_ = false;
};

// Nobody claims a block of the operation any more, nor opens its claims. Those who hold one finish
// it.
template <class Memory>
class Stop {
 public:
  explicit Stop(uint32_t turn) : turn_(turn) {}

  Step step(Memory& memory) {
    if (!loaded_) {
      claimed_ = memory.load_claimed();
      loaded_ = true;
    } else if (memory.exchange_claimed(claimed_, pack(Count{turn_, kNoMoreBlocks}))) {
      return Step::end;
    }
    return is_before(turn_, unpack_count(claimed_).turn) ? Step::end : Step::more;
  }

 private:
  uint32_t turn_;
  bool loaded_ = false;
  uint64_t claimed_ = 0;
};

}  // namespace tutti::board

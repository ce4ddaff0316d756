// Ranks, or the worker, take blocks of an operation, fold them, and end it with the last.
#pragma once

#include "daemon/board/word.h"

namespace tutti::board {

// Takes a block to fold; the claimer then folds it and runs Finish.
template <class Memory>
class Claim {
 public:
  Claim(uint32_t turn, uint32_t seat) : turn_(turn), seat_(seat) {}
  bool claimed() const { return claimed_; }
  uint32_t block() const { return seen_.blocks; }
  uint32_t blocks() const { return total_; }

  Step step(Memory& memory) {
    switch (at_) {
      case At::claimed:
        seen_ = unpack_count(memory.load_claimed());
        if (seen_.turn != turn_ || seen_.blocks >= kBlocksMost) return Step::end;
        return go(At::blocks);
      case At::blocks: {
        const Count all = unpack_count(memory.load_blocks());
        total_ = all.blocks;
        if (all.turn != turn_ || seen_.blocks >= total_) return Step::end;
        return go(At::ready);
      }
      case At::ready:
        if (seen_.blocks >= memory.load_ready(total_)) return Step::end;
        return go(At::hold);
      case At::hold:
        memory.store_holding(seat_, seen_.blocks + 1);
        return go(At::exchange);
      case At::exchange: {
        uint64_t seen = pack(seen_);
        claimed_ = memory.exchange_claimed(seen, pack(Count{turn_, seen_.blocks + 1}));
        return claimed_ ? Step::end : go(At::release);
      }
      case At::release:
        memory.store_holding(seat_, 0);
        return go(At::claimed);
    }
    return Step::end;
  }

 private:
  enum class At { claimed, blocks, ready, hold, exchange, release };
  Step go(At at) {
    at_ = at;
    return Step::more;
  }

  uint32_t turn_;
  uint32_t seat_;
  At at_ = At::claimed;
  Count seen_;
  uint32_t total_ = 0;
  bool claimed_ = false;
};

// Ends an operation whose blocks are all folded. Idempotent; anybody may run it concurrently: who
// folded the last block may have died or stopped.
template <class Memory>
class Completion {
 public:
  explicit Completion(uint32_t turn) : turn_(turn) {}
  // The operation is over: this, or somebody before, ended it.
  bool completed() const { return completed_; }
  bool wakes() const { return wakes_; }

  Step step(Memory& memory) {
    switch (at_) {
      case At::folded: {
        folded_ = unpack_count(memory.load_folded());
        if (folded_.turn != turn_) return Step::end;
        at_ = At::blocks;
        return Step::more;
      }
      case At::blocks:
        if (folded_ != unpack_count(memory.load_blocks())) return Step::end;
        at_ = At::word;
        return Step::more;
      case At::word:
        word_ = unpack(memory.load_word());
        at_ = At::exchange;
        return is_open() ? Step::more : Step::end;
      case At::exchange: {
        uint64_t seen = pack(word_);
        if (memory.exchange_word(seen, pack(ended(word_, Phase::done)))) {
          completed_ = true;
          wakes_ = word_.asleep;
          return Step::end;
        }
        word_ = unpack(seen);
        return is_open() ? Step::more : Step::end;
      }
    }
    return Step::end;
  }

 private:
  enum class At { folded, blocks, word, exchange };
  bool is_open() {
    completed_ = word_.turn != turn_ || is_over(word_.phase);
    return word_.turn == turn_ && word_.phase == Phase::folding;
  }

  uint32_t turn_;
  At at_ = At::folded;
  Count folded_;
  SlotWord word_;
  bool completed_ = false;
  bool wakes_ = false;
};

// A claimed block is folded: counts it, ends the operation with the last, lets go.
template <class Memory>
class Finish {
 public:
  Finish(uint32_t turn, uint32_t seat, uint32_t blocks)
      : turn_(turn), seat_(seat), blocks_(blocks), completion_(turn) {}
  bool completed() const { return completion_.completed(); }
  bool wakes() const { return completion_.wakes(); }

  Step step(Memory& memory) {
    switch (at_) {
      case At::load:
        folded_ = unpack_count(memory.load_folded());
        at_ = folded_.turn == turn_ ? At::count : At::release;  // Else the worker gave it up.
        return Step::more;
      case At::count: {
        uint64_t seen = pack(folded_);
        const Count next{turn_, folded_.blocks + 1};
        if (memory.exchange_folded(seen, pack(next)))
          at_ = next.blocks == blocks_ ? At::complete : At::release;
        else if (folded_ = unpack_count(seen); folded_.turn != turn_)
          at_ = At::release;
        return Step::more;
      }
      case At::complete:
        if (completion_.step(memory) == Step::end) at_ = At::release;
        return Step::more;
      case At::release:
        memory.store_holding(seat_, 0);
        return Step::end;
    }
    return Step::end;
  }

 private:
  enum class At { load, count, complete, release };
  uint32_t turn_;
  uint32_t seat_;
  uint32_t blocks_;
  At at_ = At::load;
  Count folded_;
  Completion<Memory> completion_;
};

}  // namespace tutti::board

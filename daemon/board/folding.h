// The procedures of folding: a rank, or the worker, claims a block, folds it, counts it, and ends
// the operation with the last block.
#pragma once

#include "daemon/board/word.h"

namespace tutti::board {

// Claims the next block that is ready. The claimer must fold it and run FinishBlock.
template <class Memory>
class ClaimBlock {
 public:
  ClaimBlock(uint32_t generation, uint32_t local_rank)
      : generation_(generation), local_rank_(local_rank) {}
  bool claimed() const { return claimed_; }
  uint32_t block() const { return seen_.blocks; }
  uint32_t blocks() const { return total_; }

  Step step(Memory& memory) {
    switch (state_) {
      case State::claimed:
        seen_ = unpack_count(memory.load_claimed());
        if (seen_.generation != generation_ || seen_.blocks >= kBlocksMax) return Step::end;
        return go(State::blocks);
      case State::blocks: {
        const Count all = unpack_count(memory.load_blocks());
        total_ = all.blocks;
        if (all.generation != generation_ || seen_.blocks >= total_) return Step::end;
        return go(State::ready);
      }
      case State::ready:
        if (seen_.blocks >= memory.load_ready(total_)) return Step::end;
        return go(State::hold);
      case State::hold:
        memory.store_holding(local_rank_, seen_.blocks + 1);
        return go(State::exchange);
      case State::exchange: {
        uint64_t seen = pack(seen_);
        claimed_ = memory.exchange_claimed(seen, pack(Count{generation_, seen_.blocks + 1}));
        return claimed_ ? Step::end : go(State::release);
      }
      case State::release:
        memory.store_holding(local_rank_, 0);
        return go(State::claimed);
    }
    return Step::end;
  }

 private:
  enum class State { claimed, blocks, ready, hold, exchange, release };
  Step go(State at) {
    state_ = at;
    return Step::more;
  }

  uint32_t generation_;
  uint32_t local_rank_;
  State state_ = State::claimed;
  Count seen_;
  uint32_t total_ = 0;
  bool claimed_ = false;
};

// Ends an operation whose blocks are all folded. Idempotent; any rank and the worker may run it
// concurrently, as the rank that folded the last block may have died or stopped.
template <class Memory>
class CompleteOp {
 public:
  explicit CompleteOp(uint32_t generation) : generation_(generation) {}
  // The operation is over, whether this call ended it or an earlier one.
  bool completed() const { return completed_; }
  bool must_wake() const { return must_wake_; }

  Step step(Memory& memory) {
    switch (state_) {
      case State::folded: {
        folded_ = unpack_count(memory.load_folded());
        if (folded_.generation != generation_) return Step::end;
        state_ = State::blocks;
        return Step::more;
      }
      case State::blocks:
        if (folded_ != unpack_count(memory.load_blocks())) return Step::end;
        state_ = State::word;
        return Step::more;
      case State::word:
        word_ = unpack(memory.load_word());
        state_ = State::exchange;
        return is_open() ? Step::more : Step::end;
      case State::exchange: {
        uint64_t seen = pack(word_);
        if (memory.exchange_word(seen, pack(ended(word_, Phase::done)))) {
          completed_ = true;
          must_wake_ = word_.asleep;
          return Step::end;
        }
        word_ = unpack(seen);
        return is_open() ? Step::more : Step::end;
      }
    }
    return Step::end;
  }

 private:
  enum class State { folded, blocks, word, exchange };
  bool is_open() {
    completed_ = word_.generation != generation_ || is_over(word_.phase);
    return word_.generation == generation_ && word_.phase == Phase::folding;
  }

  uint32_t generation_;
  State state_ = State::folded;
  Count folded_;
  SlotWord word_;
  bool completed_ = false;
  bool must_wake_ = false;
};

// Counts a folded block, ends the operation with the last one, and then releases the block.
template <class Memory>
class FinishBlock {
 public:
  FinishBlock(uint32_t generation, uint32_t local_rank, uint32_t blocks)
      : generation_(generation),
        local_rank_(local_rank),
        blocks_(blocks),
        completion_(generation) {}
  bool completed() const { return completion_.completed(); }
  bool must_wake() const { return completion_.must_wake(); }

  Step step(Memory& memory) {
    switch (state_) {
      case State::load:
        folded_ = unpack_count(memory.load_folded());
        state_ = folded_.generation == generation_
                     ? State::count
                     : State::release;  // Else the worker ended the operation.
        return Step::more;
      case State::count: {
        uint64_t seen = pack(folded_);
        const Count next{generation_, folded_.blocks + 1};
        if (memory.exchange_folded(seen, pack(next)))
          state_ = next.blocks == blocks_ ? State::complete : State::release;
        else if (folded_ = unpack_count(seen); folded_.generation != generation_)
          state_ = State::release;
        return Step::more;
      }
      case State::complete:
        if (completion_.step(memory) == Step::end) state_ = State::release;
        return Step::more;
      case State::release:
        memory.store_holding(local_rank_, 0);
        return Step::end;
    }
    return Step::end;
  }

 private:
  enum class State { load, count, complete, release };
  uint32_t generation_;
  uint32_t local_rank_;
  uint32_t blocks_;
  State state_ = State::load;
  Count folded_;
  CompleteOp<Memory> completion_;
};

}  // namespace tutti::board

// The procedures that begin an operation on the board. Arrive publishes a rank's request; the last
// rank to arrive decides what follows. LayOutBlocks and OpenClaims prepare the folding by ranks,
// CallWorker leaves the decision to the worker.
#pragma once

#include "daemon/board/word.h"

namespace tutti::board {

// Sets the number of blocks and resets the count of folded ones, before the word's phase is
// `folding`. Idempotent; the worker may run it concurrently with a rank. Claims stay closed until
// OpenClaims.
template <class Memory>
class LayOutBlocks {
 public:
  LayOutBlocks(uint32_t generation, uint32_t blocks) : generation_(generation), blocks_(blocks) {}

  Step step(Memory& memory) {
    switch (state_) {
      case State::blocks:
        memory.store_blocks(pack(Count{generation_, blocks_}));
        state_ = State::load;
        return Step::more;
      case State::load:
        folded_ = memory.load_folded();
        state_ = State::reset;
        return unpack_count(folded_).generation == generation_ ? Step::end : Step::more;
      case State::reset:
        // Where this fails, another has reset it, and blocks may be folded already.
        memory.exchange_folded(folded_, pack(Count{generation_, 0}));
        return Step::end;
    }
    return Step::end;
  }

 private:
  enum class State { blocks, load, reset };

  uint32_t generation_;
  uint32_t blocks_;
  State state_ = State::blocks;
  uint64_t folded_ = 0;
};

// Allows claims of the blocks that are laid out, after the word's phase is `folding`. Does nothing
// where the worker has run StopClaims before.
template <class Memory>
class OpenClaims {
 public:
  explicit OpenClaims(uint32_t generation) : generation_(generation) {}

  Step step(Memory& memory) {
    if (!loaded_) {
      claimed_ = memory.load_claimed();
      loaded_ = true;
    } else if (memory.exchange_claimed(claimed_, pack(Count{generation_, 0}))) {
      return Step::end;
    }
    return is_before(unpack_count(claimed_).generation, generation_) ? Step::more : Step::end;
  }

 private:
  uint32_t generation_;
  bool loaded_ = false;
  uint64_t claimed_ = 0;
};

// Makes the worker poll the slot. Idempotent; any rank may run it at any time.
template <class Memory>
class CallWorker {
 public:
  explicit CallWorker(uint32_t generation) : generation_(generation) {}

  Step step(Memory& memory) {
    switch (state_) {
      case State::load:
        word_ = unpack(memory.load_word());
        return chosen();
      case State::exchange: {
        uint64_t seen = pack(word_);
        if (memory.exchange_word(seen, pack(called(word_)))) return go(State::set_called);
        word_ = unpack(seen);
        return chosen();
      }
      case State::set_called:
        memory.set_called();
        return go(State::ring);
      case State::ring:
        memory.ring();
        return Step::end;
    }
    return Step::end;
  }

 private:
  enum class State { load, exchange, set_called, ring };
  Step go(State at) {
    state_ = at;
    return Step::more;
  }
  // Rings as well where another rank called the worker: that rank may have stopped before it rang.
  Step chosen() {
    if (word_.generation != generation_ || is_over(word_.phase)) return Step::end;
    return go(word_.phase == Phase::open ? State::exchange : State::set_called);
  }

  uint32_t generation_;
  State state_ = State::load;
  SlotWord word_;
};

// A rank arrives at an operation: it takes the slot where that is free, publishes its request, and
// counts itself in the word. The last member to arrive decides what follows.
template <class Memory>
class Arrive {
 public:
  enum class Result {
    none,
    not_free,  // The slot still serves an operation that some member has not settled.
    arrived,   // The operation waits for other ranks, for the worker, or for its blocks.
    alone,     // The rank holds the operation: it must fold all blocks, run EndOp, and release it.
    over,      // The operation has a verdict already.
    broken,    // The word is one that no correct program leaves.
  };

  explicit Arrive(const Participant& self)
      : self_(self), opening_(self.generation()), call_(self.generation()) {}
  Result result() const { return result_; }
  // For not_free: the first member that has not settled the slot's last operation.
  uint32_t unsettled() const { return member_; }
  // The phase changed while ranks slept on the word.
  bool must_wake() const { return must_wake_; }

  Step step(Memory& memory) {
    switch (state_) {
      case State::load_slot:
        return load_slot(memory);
      case State::check_settled:
        return check_settled(memory);
      case State::reopen:
        return reopen(memory);
      case State::write:
        memory.write_request();
        return go(State::store_arrived);
      case State::store_arrived:
        memory.store_arrived(self_.local_rank, self_.number + 1);
        return go(State::load);
      case State::load:
        word_ = unpack(memory.load_word());
        return entered();
      case State::decide:
        return decide(memory);
      case State::hold:
        memory.store_holding(self_.local_rank, 1);
        return go(decision_.alone ? State::count : State::lay_out);
      case State::lay_out:
        return layout_.step(memory) == Step::end ? go(State::count) : Step::more;
      case State::count:
        return count(memory);
      case State::release:
        memory.store_holding(self_.local_rank, 0);
        return go(State::load);
      case State::open_claims:
        return opening_.step(memory) == Step::end ? go(State::release_opened) : Step::more;
      case State::release_opened:
        memory.store_holding(self_.local_rank, 0);
        return end(Result::arrived);
      case State::check_ranks_decide:
        return memory.load_ranks_decide() ? end(Result::arrived) : go(State::call);
      case State::call:
        return call_.step(memory) == Step::end ? end(Result::arrived) : Step::more;
    }
    return Step::end;
  }

 private:
  enum class State {
    load_slot,
    check_settled,
    reopen,
    write,
    store_arrived,
    load,
    decide,
    hold,
    lay_out,
    count,
    release,
    open_claims,
    release_opened,
    check_ranks_decide,
    call
  };

  Step go(State at) {
    state_ = at;
    return Step::more;
  }
  Step end(Result result) {
    result_ = result;
    return Step::end;
  }

  Step load_slot(Memory& memory) {
    word_ = unpack(memory.load_word());
    if (word_.generation == self_.generation())
      return word_.phase == Phase::failed ? end(Result::over) : go(State::write);
    if (word_.generation + 1 != self_.generation()) return end(Result::broken);
    if (word_.generation == 0) return go(State::reopen);
    if (!is_over(word_.phase)) return end(Result::not_free);
    member_ = 0;
    return go(memory.all_settled(self_.number - self_.slots) ? State::reopen
                                                             : State::check_settled);
  }

  Step check_settled(Memory& memory) {
    if (memory.load_settled(member_) <= self_.number - self_.slots) return end(Result::not_free);
    return ++member_ == self_.members ? go(State::reopen) : Step::more;
  }

  Step reopen(Memory& memory) {
    uint64_t seen = pack(word_);
    memory.exchange_word(seen, pack(reopened(self_.generation())));
    return go(State::load_slot);
  }

  // Continues with the word that was read last.
  Step entered() {
    if (word_.generation != self_.generation()) return end(Result::broken);
    if (word_.phase == Phase::failed) return end(Result::over);
    if (!may_arrive(word_.phase)) return end(Result::arrived);  // The worker has counted this rank.
    decision_ = {word_.phase, 0, false};
    const bool is_last = word_.arrived + 1 == self_.members;
    return go(word_.phase == Phase::open && is_last ? State::decide : State::count);
  }

  // Reads ranks_decide after the word: the worker clears it, then calls the operations at which a
  // rank has arrived. Read before, it could be older than the word.
  Step decide(Memory& memory) {
    decision_ = memory.load_ranks_decide() ? memory.decide() : Decision{};
    if (decision_.next != Phase::folding) return go(State::count);
    layout_ = LayOutBlocks<Memory>(self_.generation(), decision_.blocks);
    return go(State::hold);
  }

  Step count(Memory& memory) {
    uint64_t seen = pack(word_);
    if (!memory.exchange_word(seen, pack(with_arrival(word_, decision_.next)))) {
      const bool held = decision_.next == Phase::folding;
      if (held) return go(State::release);
      word_ = unpack(seen);
      return entered();
    }
    must_wake_ = word_.asleep && decision_.next != word_.phase;
    if (decision_.next == Phase::done) return end(Result::over);
    if (decision_.next == Phase::folding)
      return decision_.alone ? end(Result::alone) : go(State::open_claims);
    return go(decision_.next == Phase::called ? State::call : State::check_ranks_decide);
  }

  Participant self_;
  State state_ = State::load_slot;
  SlotWord word_;
  uint32_t member_ = 0;
  Decision decision_;
  LayOutBlocks<Memory> layout_{0, 0};
  OpenClaims<Memory> opening_;
  CallWorker<Memory> call_;
  Result result_ = Result::none;
  bool must_wake_ = false;
};

}  // namespace tutti::board

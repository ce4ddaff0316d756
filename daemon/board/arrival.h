// A rank arrives at an operation, calls the worker to it, or makes its blocks ready for folding.
#pragma once

#include "daemon/board/word.h"

namespace tutti::board {

// Blocks of one operation are laid out for folding, before the word says so. Idempotent; the worker
// may do it while a rank does. Nobody claims one before they are opened.
template <class Memory>
class Layout {
 public:
  Layout(uint32_t turn, uint32_t blocks) : turn_(turn), blocks_(blocks) {}

  Step step(Memory& memory) {
    switch (at_) {
      case At::blocks:
        memory.store_blocks(pack(Count{turn_, blocks_}));
        at_ = At::load;
        return Step::more;
      case At::load:
        folded_ = memory.load_folded();
        at_ = At::reset;
        return unpack_count(folded_).turn == turn_ ? Step::end : Step::more;
      case At::reset:
        // Refused: somebody else did it, and blocks may be folded by now.
        memory.exchange_folded(folded_, pack(Count{turn_, 0}));
        return Step::end;
    }
    return Step::end;
  }

 private:
  enum class At { blocks, load, reset };

  uint32_t turn_;
  uint32_t blocks_;
  At at_ = At::blocks;
  uint64_t folded_ = 0;
};

// Blocks that are laid out may be claimed, once the word says that ranks fold. Not where the worker
// has stopped the operation before.
template <class Memory>
class Opening {
 public:
  explicit Opening(uint32_t turn) : turn_(turn) {}

  Step step(Memory& memory) {
    if (!loaded_) {
      claimed_ = memory.load_claimed();
      loaded_ = true;
    } else if (memory.exchange_claimed(claimed_, pack(Count{turn_, 0}))) {
      return Step::end;
    }
    return is_before(unpack_count(claimed_).turn, turn_) ? Step::more : Step::end;
  }

 private:
  uint32_t turn_;
  bool loaded_ = false;
  uint64_t claimed_ = 0;
};

// Makes the worker look at a slot. Idempotent; any rank may run it at any time.
template <class Memory>
class Call {
 public:
  explicit Call(uint32_t turn) : turn_(turn) {}

  Step step(Memory& memory) {
    switch (at_) {
      case At::load:
        word_ = unpack(memory.load_word());
        return chosen();
      case At::exchange: {
        uint64_t seen = pack(word_);
        if (memory.exchange_word(seen, pack(called(word_)))) return go(At::mark);
        word_ = unpack(seen);
        return chosen();
      }
      case At::mark:
        memory.mark();
        return go(At::ring);
      case At::ring:
        memory.ring();
        return Step::end;
    }
    return Step::end;
  }

 private:
  enum class At { load, exchange, mark, ring };
  Step go(At at) {
    at_ = at;
    return Step::more;
  }
  // What another rank has called, or folds, is looked at, too: it may have stopped before it rang.
  Step chosen() {
    if (word_.turn != turn_ || is_over(word_.phase)) return Step::end;
    return go(word_.phase == Phase::open ? At::exchange : At::mark);
  }

  uint32_t turn_;
  At at_ = At::load;
  SlotWord word_;
};

template <class Memory>
class Arrival {
 public:
  enum class Result {
    none,
    not_free,  // The slot still serves an operation that some member has not settled.
    arrived,   // It waits for others, the worker, or the folding.
    alone,     // It holds the operation: it folds all blocks, runs Ending and lets go.
    over,      // There is a verdict already.
    broken,    // No correct program leaves such a word.
  };

  explicit Arrival(const Part& part) : part_(part), opening_(part.turn()), call_(part.turn()) {}
  Result result() const { return result_; }
  // Members that keep the slot: of not_free.
  uint32_t unsettled() const { return member_; }
  // Somebody slept when the phase changed.
  bool wakes() const { return wakes_; }

  Step step(Memory& memory) {
    switch (at_) {
      case At::look:
        return look(memory);
      case At::settled:
        return check_settled(memory);
      case At::reopen:
        return reopen(memory);
      case At::write:
        memory.write_request();
        return go(At::stamp);
      case At::stamp:
        memory.store_arrived(part_.seat, part_.number + 1);
        return go(At::load);
      case At::load:
        word_ = unpack(memory.load_word());
        return entered();
      case At::decide:
        return decide(memory);
      case At::hold:
        memory.store_holding(part_.seat, 1);
        return go(decision_.alone ? At::count : At::lay_out);
      case At::lay_out:
        return layout_.step(memory) == Step::end ? go(At::count) : Step::more;
      case At::count:
        return count(memory);
      case At::release:
        memory.store_holding(part_.seat, 0);
        return go(At::load);
      case At::open_claims:
        return opening_.step(memory) == Step::end ? go(At::let_go) : Step::more;
      case At::let_go:
        memory.store_holding(part_.seat, 0);
        return end(Result::arrived);
      case At::look_around:
        return memory.load_ranks_decide() ? end(Result::arrived) : go(At::call);
      case At::call:
        return call_.step(memory) == Step::end ? end(Result::arrived) : Step::more;
    }
    return Step::end;
  }

 private:
  enum class At {
    look,
    settled,
    reopen,
    write,
    stamp,
    load,
    decide,
    hold,
    lay_out,
    count,
    release,
    open_claims,
    let_go,
    look_around,
    call
  };

  Step go(At at) {
    at_ = at;
    return Step::more;
  }
  Step end(Result result) {
    result_ = result;
    return Step::end;
  }

  Step look(Memory& memory) {
    word_ = unpack(memory.load_word());
    if (word_.turn == part_.turn())
      return word_.phase == Phase::failed ? end(Result::over) : go(At::write);
    if (word_.turn + 1 != part_.turn()) return end(Result::broken);
    if (word_.turn == 0) return go(At::reopen);
    if (!is_over(word_.phase)) return end(Result::not_free);
    member_ = 0;
    return go(memory.all_settled(part_.number - part_.slots) ? At::reopen : At::settled);
  }

  Step check_settled(Memory& memory) {
    if (memory.load_settled(member_) <= part_.number - part_.slots) return end(Result::not_free);
    return ++member_ == part_.members ? go(At::reopen) : Step::more;
  }

  Step reopen(Memory& memory) {
    uint64_t seen = pack(word_);
    memory.exchange_word(seen, pack(reopened(part_.turn())));
    return go(At::look);
  }

  // Chooses what the arrival makes of the word just read.
  Step entered() {
    if (word_.turn != part_.turn()) return end(Result::broken);
    if (word_.phase == Phase::failed) return end(Result::over);
    if (!may_arrive(word_.phase)) return end(Result::arrived);  // The worker counted this rank.
    decision_ = {word_.phase, 0, false};
    const bool is_last = word_.arrived + 1 == part_.members;
    return go(word_.phase == Phase::open && is_last ? At::decide : At::count);
  }

  // After the word, not before: the worker clears `ranks_decide`, then calls what somebody arrived
  // at; who reads a later word reads the later news, too.
  Step decide(Memory& memory) {
    decision_ = memory.load_ranks_decide() ? memory.decide() : Decision{};
    if (decision_.next != Phase::folding) return go(At::count);
    layout_ = Layout<Memory>(part_.turn(), decision_.blocks);
    return go(At::hold);
  }

  Step count(Memory& memory) {
    uint64_t seen = pack(word_);
    if (!memory.exchange_word(seen, pack(with_arrival(word_, decision_.next)))) {
      const bool held = decision_.next == Phase::folding;
      if (held) return go(At::release);
      word_ = unpack(seen);
      return entered();
    }
    wakes_ = word_.asleep && decision_.next != word_.phase;
    if (decision_.next == Phase::done) return end(Result::over);
    if (decision_.next == Phase::folding)
      return decision_.alone ? end(Result::alone) : go(At::open_claims);
    return go(decision_.next == Phase::called ? At::call : At::look_around);
  }

  Part part_;
  At at_ = At::look;
  SlotWord word_;
  uint32_t member_ = 0;
  Decision decision_;
  Layout<Memory> layout_{0, 0};
  Opening<Memory> opening_;
  Call<Memory> call_;
  Result result_ = Result::none;
  bool wakes_ = false;
};

}  // namespace tutti::board

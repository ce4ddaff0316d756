// The model's shared memory, on which the procedures of transitions.h run. Checks every change.
#pragma once

#include "tests/board/model.h"

namespace tutti::board::model {

// The slot of one operation, as `actor` sees it.
class Memory {
 public:
  Memory(Context& context, uint32_t actor, uint32_t number)
      : context_(context),
        setup_(context.setup),
        shared_(context.state.shared),
        actor_(actor),
        number_(number),
        slot_(number % kSlots) {}

  uint64_t load_word() { return touch(shared_.word[slot_]); }
  bool exchange_word(uint64_t& seen, uint64_t next) {
    if (setup_.fault == Fault::words_by_store) seen = shared_.word[slot_];
    const SlotWord before = unpack(shared_.word[slot_]);
    if (!exchange(shared_.word[slot_], seen, next)) return false;
    check_change(before, unpack(next));
    if (actor_ != kWorker) context_.state.ranks[actor_].counted |= is_arrival(before, unpack(next));
    return true;
  }
  uint64_t load_claimed();
  bool exchange_claimed(uint64_t& seen, uint64_t next);
  uint64_t load_blocks() { return as_read(touch(shared_.blocks[slot_])); }
  void store_blocks(uint64_t value) { own(shared_.blocks[slot_]) = value; }
  uint64_t load_folded();
  bool exchange_folded(uint64_t& seen, uint64_t next);
  void write_request() {
    own(shared_.request[slot_][actor_]) = kTorn;
    context_.state.ranks[actor_].decides =
        setup_.fault == Fault::stale_ranks_decide && shared_.ranks_decide;
    shared_.came[number_] |= static_cast<uint8_t>(1U << actor_);
  }
  void store_arrived(uint32_t local_rank, uint64_t value) {
    const bool odd = static_cast<int>(number_) == setup_.disagree_at && local_rank == 0;
    shared_.request[slot_][local_rank] = static_cast<uint8_t>(number_ + (odd ? kOdd : 0));
    own(shared_.arrived[slot_][local_rank]) = static_cast<uint8_t>(value);
  }
  void store_holding(uint32_t local_rank, uint32_t value) {
    const bool claims = actor_ != kWorker && context_.state.ranks[actor_].at == RankAt::claim;
    const bool arrives = actor_ != kWorker && context_.state.ranks[actor_].at == RankAt::arrive;
    if (setup_.fault == Fault::holding_after_the_claim && claims && value != 0) return;
    if (setup_.fault == Fault::alone_without_holding && arrives) return;
    own(shared_.holding[slot_][local_rank]) = static_cast<uint8_t>(value);
  }
  uint32_t load_ready(uint32_t blocks) const { return blocks; }
  bool all_settled(uint64_t) const { return setup_.fault == Fault::settled_is_not_asked; }
  uint64_t load_settled(uint32_t member) { return touch(shared_.settled[member]); }
  bool load_ranks_decide();
  void set_called() {
    ++context_.touches;
    shared_.called |= static_cast<uint8_t>(1U << slot_);
  }
  void ring() { touch(shared_.rung) = true; }
  // Reads requests that must be stable.
  Decision decide() const {
    if (!agreed(context_.everyone())) return {};
    if (setup_.blocks == 0) return {Phase::done, 0, false};
    return {Phase::folding, setup_.blocks, setup_.alone};
  }
  bool agreed(uint32_t members) const;

  // Folding a block reads every request; it must not happen twice, or after a failure was seen.
  void check_fold(uint32_t block, bool begins);

 private:
  template <class T>
  T& touch(T& at) {
    ++context_.touches;
    return at;
  }
  template <class T>
  T& own(T& at) {
    check_generation();
    return touch(at);
  }
  bool exchange(uint64_t& at, uint64_t& seen, uint64_t next) {
    const bool same = touch(at) == seen;
    if (same) at = next;
    seen = same ? seen : at;
    return same;
  }
  void check_generation() {
    context_.require(unpack(shared_.word[slot_]).generation == generation_of(number_),
                     "somebody writes to another operation's slot");
  }
  bool has_fault(Fault fault, bool applies) const { return applies && setup_.fault == fault; }
  // The change lays out blocks or opens claims; else it claims or counts a block.
  bool prepares() const {
    if (actor_ == kWorker) return context_.state.worker.at == WorkerAt::resume;
    return context_.state.ranks[actor_].at == RankAt::arrive;
  }
  uint64_t as_read(uint64_t bits) const {
    const bool any = setup_.fault == Fault::counts_without_generations;
    return any ? pack(Count{generation_of(number_), unpack_count(bits).blocks}) : bits;
  }
  static bool is_arrival(const SlotWord& before, const SlotWord& after) {
    return before.generation == after.generation && before.arrived + 1 == after.arrived;
  }
  void check_change(const SlotWord& before, const SlotWord& after);
  void check_done();

  Context& context_;
  const Setup& setup_;
  Shared& shared_;
  uint32_t actor_;
  uint32_t number_;
  uint32_t slot_;
};

inline uint64_t Memory::load_claimed() {
  const uint64_t now = touch(shared_.claimed[slot_]);
  return has_fault(Fault::claims_open_over_a_stop, prepares()) ? 0 : now;
}

inline bool Memory::exchange_claimed(uint64_t& seen, uint64_t next) {
  const bool stops = unpack_count(next).blocks == kNoMoreBlocks;
  const bool older = unpack_count(seen).generation != generation_of(number_);
  if (has_fault(Fault::stop_leaves_unopened, stops && older)) return true;
  if (has_fault(Fault::claims_open_over_a_stop, prepares()) ||
      has_fault(Fault::claims_by_store, !prepares() && !stops))
    seen = shared_.claimed[slot_];
  if (!stops) check_generation();  // A late stop of an older generation is harmless.
  return exchange(shared_.claimed[slot_], seen, next);
}

inline uint64_t Memory::load_folded() {
  const uint64_t now = touch(shared_.folded[slot_]);
  return has_fault(Fault::counts_reset_twice, prepares()) ? 0 : as_read(now);
}

inline bool Memory::exchange_folded(uint64_t& seen, uint64_t next) {
  if (has_fault(Fault::counts_reset_twice, prepares()) ||
      has_fault(Fault::counts_by_store, !prepares()))
    seen = shared_.folded[slot_];
  if (has_fault(Fault::claims_open_early, prepares())) shared_.claimed[slot_] = next;
  check_generation();
  return exchange(shared_.folded[slot_], seen, next);
}

inline bool Memory::load_ranks_decide() {
  const bool now = touch(shared_.ranks_decide);
  if (actor_ == kWorker) return now;
  const Rank& rank = context_.state.ranks[actor_];
  if (setup_.fault == Fault::ranks_decide_is_not_read && rank.counted) return true;
  if (setup_.fault == Fault::stale_ranks_decide && !rank.counted) return rank.decides;
  return now;
}

inline bool Memory::agreed(uint32_t members) const {
  uint32_t odd = 0;
  for (uint32_t rank = 0; rank < setup_.ranks; ++rank) {
    if (!has(members, rank)) continue;
    const uint32_t request = shared_.request[slot_][rank];
    context_.require(request != kTorn, "a request is read while it is written");
    if (request >= kOdd) odd |= 1U << rank;
  }
  return odd == 0 || odd == members;
}

inline void Memory::check_fold(uint32_t block, bool begins) {
  ++context_.touches;
  for (uint32_t rank = 0; rank < setup_.ranks; ++rank)
    context_.require(shared_.request[slot_][rank] == number_,
                     "another operation's request is folded");
  const bool excused = shared_.epoch_over && has(shared_.given_up, actor_);
  context_.require(shared_.verdict[number_] != Phase::failed || excused,
                   "an output changes after its failure was seen");
  uint8_t& count = begins ? shared_.begun[number_][block] : shared_.folds[number_][block];
  context_.require(++count == 1, "a block is folded twice");
}

inline void Memory::check_change(const SlotWord& before, const SlotWord& after) {
  const uint32_t generation = generation_of(number_);
  context_.require(after.generation == generation &&
                       (before.generation == generation || before.generation + 1 == generation),
                   "somebody changes another operation's word");
  context_.require(before.generation != generation || !is_over(before.phase), "a verdict changes");
  context_.require(after.arrived <= setup_.ranks, "somebody is counted twice");
  if (before.generation != generation && before.generation != 0)
    for (uint32_t rank = 0; rank < setup_.ranks; ++rank)
      context_.require(shared_.settled[rank] > number_ - kSlots,
                       "a slot is opened again before all have settled");
  const bool begins = before.phase == Phase::open && !may_arrive(after.phase);
  context_.require(!begins || actor_ == kWorker || !has(shared_.diverted, slot_),
                   "a rank decides though the worker wants to");
  if (after.phase == Phase::done) check_done();
}

inline void Memory::check_done() {
  context_.require(static_cast<int>(number_) != setup_.disagree_at, "OK, and they did not agree");
  context_.require(shared_.came[number_] == context_.everyone(), "OK before all had come");
  for (uint32_t block = 0; block < setup_.blocks; ++block)
    context_.require(shared_.folds[number_][block] == 1, "OK before all blocks were folded");
}

}  // namespace tutti::board::model

// The ranks and the worker of model.h: an Action is one step of one of them.
#pragma once

#include <bit>

#include "tests/board/memory.h"

namespace tutti::board::model {

enum class Kind : uint8_t {
  step,      // The actor's next step.
  call,      // A rank that waits calls the worker.
  sleep,     // A rank that waits falls asleep; its time-outs are steps.
  die,       // A rank dies.
  note,      // The worker learns of the death of rank `arg`.
  deadline,  // The deadline of the operation in slot `arg`; kSlots: of a call that found no slot.
  give_up,   // The worker waits no longer for a rank that holds a block past the deadline.
};
inline constexpr bool is_time(Kind kind) { return kind == Kind::deadline || kind == Kind::give_up; }

struct Action {
  uint8_t actor = 0;
  Kind kind = Kind::step;
  uint8_t arg = 0;
};

class Actors {
 public:
  explicit Actors(Context& context)
      : context_(context),
        setup_(context.setup),
        state_(context.state),
        shared_(context.state.shared),
        worker_(context.state.worker) {}

  static bool waits(const State& state, const Rank& rank);
  static bool is_late(const Setup& setup, const State& state, uint32_t slot);
  static bool is_enabled(const Setup& setup, const State& state, const Action& action);
  void take(const Action& action);
  // Bit a rank: some operation needs its steps to end before its deadline.
  static uint32_t needed(const Setup& setup, const State& state);
  // No step is left: no slot may be lost.
  void check_end();

 private:
  Memory memory(uint32_t actor, uint32_t number) { return Memory(context_, actor, number); }
  template <class Procedure>
  bool ends(Rank& rank, uint32_t number) {
    Memory slot = memory(local_rank(rank), number);
    return rank.running.as<Procedure>().step(slot) == Step::end;
  }
  template <class Procedure>
  bool ends() {
    Memory slot = memory(kWorker, worker_.number);
    return worker_.running.as<Procedure>().step(slot) == Step::end;
  }
  template <class Procedure, class... Args>
  void begin(Rank& rank, RankAt at, const Args&... args) {
    rank.at = at;
    rank.running.begin<Procedure>(args...);
  }
  template <class Procedure, class... Args>
  void begin(WorkerAt at, const Args&... args) {
    worker_.at = at;
    worker_.running.begin<Procedure>(args...);
  }
  void go(Rank& rank, RankAt at) {
    rank.at = at;
    rank.running.clear();
  }
  void go(WorkerAt at) {
    worker_.at = at;
    worker_.member = 0;
    worker_.running.clear();
  }
  uint32_t local_rank(const Rank& rank) const {
    return static_cast<uint32_t>(&rank - state_.ranks);
  }
  static uint32_t slot_of(const Rank& rank) { return rank.waits % kSlots; }

  // Steps of a rank.
  void step(Rank& rank);
  void choose(Rank& rank);
  void bar(Rank& rank);
  void arrive(Rank& rank);
  void arrived(Rank& rank, bool alone);
  void fold(Rank& rank);
  void finish(Rank& rank);
  void wait(Rank& rank);
  void note(Rank& rank, Phase verdict);
  void read_failure(Rank& rank);
  void settle(Rank& rank);
  void claim(Rank& rank);

  // Steps of the worker.
  void step();
  void rest();
  void take_called();
  void divert();
  void look();
  void judge();
  void judge(bool all);
  void clear_gone();
  void find_dead_holders();
  void await_holders();
  void give_up();
  void completed();
  void fail();
  void write_failure();
  void ended();
  void drop();
  uint32_t generation() const { return generation_of(worker_.number); }
  bool decides_all() const { return worker_.gone != 0 || shared_.epoch_over; }

  Context& context_;
  const Setup& setup_;
  State& state_;
  Shared& shared_;
  Worker& worker_;
};

inline bool Actors::waits(const State& state, const Rank& rank) {
  const SlotWord word = unpack(state.shared.word[rank.waits % kSlots]);
  return rank.at == RankAt::wait && !is_over(word.phase);
}

inline bool Actors::is_late(const Setup& setup, const State& state, uint32_t slot) {
  if (setup.deadlines == Deadlines::never) return false;
  uint32_t busy = 0;
  bool refused = false;
  for (const Rank& rank : state.ranks) {
    const bool rests = rank.dead || rank.at == RankAt::finished || waits(state, rank);
    if (!rests && !rank.refused) busy |= 1U << (&rank - state.ranks);
    refused |= rank.refused && !rank.barred;
  }
  const bool is_slow = std::has_single_bit(busy) && (busy & setup.slow) != 0;
  if (setup.deadlines == Deadlines::late && !is_slow) return false;
  if (slot == kSlots) return refused && !state.shared.epoch_over;
  const SlotWord word = unpack(state.shared.word[slot]);
  return !is_over(word.phase) && word.arrived > 0;
}

inline bool Actors::is_enabled(const Setup& setup, const State& state, const Action& action) {
  const Worker& worker = state.worker;
  const bool is_rank = action.actor < setup.ranks;
  const Rank& rank = state.ranks[is_rank ? action.actor : 0];
  const Shared& shared = state.shared;
  const bool lives = !rank.dead && rank.at != RankAt::finished;
  const bool waits = is_rank && Actors::waits(state, rank);
  const bool rests = worker.at == WorkerAt::rest && worker.todo == 0;
  switch (action.kind) {
    case Kind::step:
      return is_rank ? lives : worker.at != WorkerAt::rest || worker.todo != 0 || shared.rung;
    case Kind::call:
      return waits && has(setup.impatient, action.actor) &&
             setup.fault != Fault::waiting_never_calls;
    case Kind::sleep:
      return waits && setup.sleepers && !unpack(shared.word[rank.waits % kSlots]).asleep;
    case Kind::die:
      return !rank.dead && has(setup.mortal, action.actor);
    case Kind::note:
      return rests && state.ranks[action.arg].dead && !has(worker.gone, action.arg);
    case Kind::deadline:
      return rests && is_late(setup, state, action.arg);
    case Kind::give_up:
      return setup.deadlines != Deadlines::never && worker.at == WorkerAt::holders &&
             has(setup.slow, worker.member) && shared.holding[worker.slot][worker.member] != 0 &&
             !state.ranks[worker.member].dead;
  }
  return false;
}

inline void Actors::take(const Action& action) {
  Rank& rank = state_.ranks[action.actor % kRanks];
  switch (action.kind) {
    case Kind::step:
      return action.actor == kWorker ? step() : step(rank);
    case Kind::call:
      return begin<CallWorker<Memory>>(rank, RankAt::call, generation_of(rank.waits));
    case Kind::sleep:
      ++context_.touches;
      shared_.word[slot_of(rank)] = pack(with_sleeper(unpack(shared_.word[slot_of(rank)])));
      return;
    case Kind::die:
      std::memset(&rank, 0, sizeof rank);
      rank.dead = true;
      return;
    case Kind::note:
      worker_.gone |= static_cast<uint8_t>(1U << action.arg);
      go(WorkerAt::settle_gone);
      worker_.member = action.arg;
      return;
    case Kind::deadline:
      if (action.arg == kSlots) {
        shared_.epoch_over = true;
        return go(WorkerAt::divert);
      }
      worker_.late = true;
      worker_.todo = static_cast<uint8_t>(1U << action.arg);
      return;
    case Kind::give_up:
      return give_up();
  }
}

inline uint32_t Actors::needed(const Setup& setup, const State& state) {
  uint32_t bits = 0;
  for (uint32_t number = 0; number < setup.ops; ++number) {
    const uint32_t slot = number % kSlots;
    const bool folded =
        unpack_count(state.shared.folded[slot]) == Count{generation_of(number), setup.blocks};
    for (uint32_t rank = 0; rank < setup.ranks; ++rank) {
      const bool came = state.shared.arrived[slot][rank] > number;
      const bool holds = state.shared.holding[slot][rank] != 0 && !folded;
      if (!state.ranks[rank].dead && (!came || holds)) bits |= 1U << rank;
    }
  }
  return bits;
}

inline void Actors::check_end() {
  bool any_lives = false;
  for (uint32_t rank = 0; rank < setup_.ranks; ++rank) any_lives |= !state_.ranks[rank].dead;
  if (!any_lives || shared_.epoch_over) return;
  for (uint64_t bits : shared_.word) {
    const SlotWord word = unpack(bits);
    context_.require(is_over(word.phase) || word.arrived == 0, "a slot is left under way");
  }
  for (uint32_t rank = 0; rank < setup_.ranks; ++rank)
    context_.require(shared_.settled[rank] >= setup_.ops, "a slot is never settled");
}

}  // namespace tutti::board::model

// A model of the ranks of one host whose tensors pass through windows, of the worker that uses the
// windows, and of the link that reads them. Results go back to the windows, or to one that all
// ranks read. Small enough to run in every interleaving. The ranks and the worker run the
// procedures of daemon/board, one access of shared memory a step; a rank proceeds as in
// client/operations/staged_op.cc. The operation may fail whenever the worker is not in a procedure.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "daemon/board/board.h"
#include "tests/board/model.h"

namespace tutti::board::passing {

using model::Running;

inline constexpr uint32_t kGeneration = 1;
inline constexpr uint8_t kResult = 0x80;
inline constexpr uint32_t kRanksMax = 2;
inline constexpr uint32_t kPlaces = 3;

enum class Fault {
  none,
  fills_without_calling,          // The worker is not called.
  reads_the_word_too_early,       // The rank reads the word, then publishes what is ready.
  passes_without_waking,          // The worker wakes no sleeper.
  wakes_without_counting,         // A wake-up leaves the word as it was before the sleep.
  sleeps_without_reading_passed,  // The rank does not read `passed` again.
  fills_before_it_takes,          // A place is reused before its result is taken.
  passes_for_the_first_rank,      // The worker reads what is ready of one rank only.
  ends_without_waking,            // The end wakes no sleeper.
  ends_while_a_link_reads,        // The end is published while a link still reads the windows.
  takes_what_failed,              // The rank takes the results of a failed operation.
  settles_before_it_takes,        // The rank settles an operation, then takes the last results.
};

struct Setup {
  uint32_t ranks = 1;
  uint32_t blocks = 1;
  uint32_t window = 1;  // In blocks.
  bool fails = false;   // The operation may fail at any moment.
  bool common = false;  // The window of results is one.
  Fault fault = Fault::none;
};

struct Shared {
  uint64_t word;
  uint64_t passed;
  uint32_t ready[kRanksMax];
  // The number of the block in that place plus one; with kResult where it is the block's result.
  uint8_t places[kRanksMax][kPlaces];
  uint8_t results[kPlaces];    // Where they are common: the number of the block plus one.
  bool given_back[kRanksMax];  // The window belongs to another call; the operation is settled.
  bool rung;
};

struct Memory {
  Shared& shared;
  Fault fault;

  uint64_t load_word() const { return shared.word; }
  bool exchange_word(uint64_t& seen, uint64_t next) const {
    if (shared.word != seen) {
      seen = shared.word;
      return false;
    }
    if (fault == Fault::wakes_without_counting) {
      SlotWord word = unpack(next);
      word.wakes = 0;
      next = pack(word);
    }
    shared.word = next;
    return true;
  }
  void store_ready(uint32_t local_rank, uint32_t blocks) const {
    shared.ready[local_rank] = blocks;
  }
  void store_passed(uint64_t value) const { shared.passed = value; }
  uint64_t load_passed() const {
    return fault == Fault::sleeps_without_reading_passed ? pack(Count{kGeneration, 0})
                                                         : shared.passed;
  }
  uint64_t load_shared() const { return 0; }
  void set_called() const {}
  void ring() const { shared.rung = true; }
};

enum class RankAt : uint8_t { look, step, fill, take, prepare_sleep, may_sleep, asleep, finished };
enum class WorkerAt : uint8_t { unbegun, idle, look, lent, pass, end, finished };

struct Rank {
  RankAt at;
  bool any;  // The rank has made progress since it last read the word.
  uint8_t fed;
  uint8_t taken;
  Running running;
};

struct Worker {
  WorkerAt at;
  bool failed;
  bool reads;  // A link reads the windows.
  uint8_t done;
  Running running;
};

// Zeroed before use, and unused bytes are zero, so that equal states have equal bytes.
struct State {
  Shared shared;
  Rank ranks[kRanksMax];
  Worker worker;
};
static_assert(std::is_trivially_copyable_v<State> && sizeof(State) % 8 == 0);

// Takes one step in a state. Writes the first violation to `wrong`.
class Actors {
 public:
  Actors(const Setup& setup, State& state, std::string& wrong)
      : setup_(setup),
        state_(state),
        shared_(state.shared),
        worker_(state.worker),
        memory_{state.shared, setup.fault},
        wrong_(wrong) {}

  static void begin(State& state) {
    std::memset(static_cast<void*>(&state), 0, sizeof state);
    state.shared.word = pack(SlotWord{kGeneration, Phase::open, false, 1});
  }

  // For SmallExplorer: the steps of the ranks, then the worker's, the last arrival, and a failure.
  static uint32_t moves(const Setup& setup) { return setup.ranks + (setup.fails ? 3 : 2); }
  static bool may_never_come(const Setup& setup, uint32_t move) { return move == setup.ranks + 2; }
  bool move(uint32_t move) {
    if (move < setup_.ranks) return step_rank(move);
    if (move == setup_.ranks) return step_worker();
    return move == setup_.ranks + 1 ? arrive() : fail();
  }
  bool are_finished() const {
    for (uint32_t local_rank = 0; local_rank < setup_.ranks; ++local_rank)
      if (state_.ranks[local_rank].at != RankAt::finished) return false;
    return true;
  }

 private:
  // False: it can take no step.
  bool step_rank(uint32_t local_rank);
  bool step_worker();
  bool fail();
  // The last member arrives and calls the worker; its tensor needs no window.
  bool arrive();
  template <class Procedure>
  bool ends(Running& running) {
    return running.as<Procedure>().step(memory_) == Step::end;
  }
  void go(Rank& rank, RankAt at) {
    rank.at = at;
    rank.running.clear();
  }
  void go(WorkerAt at) {
    worker_.at = at;
    worker_.running.clear();
  }
  void require(bool holds, const char* what) {
    if (!holds && wrong_.empty()) wrong_ = what;
  }
  uint8_t& place(uint32_t local_rank, uint32_t block) {
    return shared_.places[local_rank][block % setup_.window];
  }
  bool injects(Fault fault) const { return setup_.fault == fault; }

  void look(uint32_t local_rank);
  void feed(uint32_t local_rank);
  void fill(uint32_t local_rank);
  void take_some(uint32_t local_rank);
  void take(uint32_t local_rank);
  void use();
  void sent();
  void read_windows();
  bool use_results_again();
  void end(Phase verdict);
  void wake();

  const Setup& setup_;
  State& state_;
  Shared& shared_;
  Worker& worker_;
  Memory memory_;
  std::string& wrong_;
};

// ---- A rank, as in client/operations/staged_op.cc ----

inline bool Actors::step_rank(uint32_t local_rank) {
  Rank& rank = state_.ranks[local_rank];
  switch (rank.at) {
    case RankAt::look:
      look(local_rank);
      return true;
    case RankAt::step:
      feed(local_rank);
      return true;
    case RankAt::fill:
      if (ends<FillWindow<Memory>>(rank.running)) go(rank, RankAt::take);
      return true;
    case RankAt::take:
      take_some(local_rank);
      return true;
    case RankAt::prepare_sleep:
      if (ends<PrepareSleep<Memory>>(rank.running)) {
        if (rank.running.as<PrepareSleep<Memory>>().may_sleep())
          rank.at = RankAt::may_sleep;
        else
          go(rank, RankAt::look);
      }
      return true;
    case RankAt::may_sleep: {
      const auto low = static_cast<uint32_t>(rank.running.as<PrepareSleep<Memory>>().word());
      go(rank, low == static_cast<uint32_t>(shared_.word) ? RankAt::asleep : RankAt::look);
      return true;
    }
    case RankAt::asleep:
    case RankAt::finished:
      return false;
  }
  return false;
}

// When the operation is over the rank takes the remaining results and gives its window back.
inline void Actors::look(uint32_t local_rank) {
  Rank& rank = state_.ranks[local_rank];
  const Phase phase = unpack(shared_.word).phase;
  rank.any = false;
  if (!is_over(phase)) return go(rank, RankAt::step);
  require(phase == Phase::failed || rank.fed == setup_.blocks, "it ended before all was filled");
  if (injects(Fault::settles_before_it_takes) && !shared_.given_back[local_rank]) {
    shared_.given_back[local_rank] = true;
    return;
  }
  if (phase == Phase::done || injects(Fault::takes_what_failed))
    while (rank.taken < setup_.blocks) take(local_rank);
  shared_.given_back[local_rank] = true;
  go(rank, RankAt::finished);
}

inline void Actors::feed(uint32_t local_rank) {
  Rank& rank = state_.ranks[local_rank];
  const bool eager = injects(Fault::fills_before_it_takes);
  const uint32_t room = eager ? unpack_count(shared_.passed).blocks : rank.taken;
  if (rank.fed == setup_.blocks || rank.fed == room + setup_.window) return go(rank, RankAt::take);
  rank.any = true;
  fill(local_rank);
}

inline void Actors::fill(uint32_t local_rank) {
  Rank& rank = state_.ranks[local_rank];
  uint8_t& at = place(local_rank, rank.fed);
  require(at == 0, "a place is filled that is in use");
  at = ++rank.fed;
  const bool blind = injects(Fault::reads_the_word_too_early);
  const bool tells = !blind && !injects(Fault::fills_without_calling);
  rank.at = RankAt::fill;
  rank.running.begin<FillWindow<Memory>>(kGeneration, local_rank, uint32_t{rank.fed}, tells);
  if (blind) shared_.rung |= unpack(shared_.word).phase == Phase::called;
}

inline void Actors::take_some(uint32_t local_rank) {
  Rank& rank = state_.ranks[local_rank];
  if (rank.taken < rank.fed && rank.taken < unpack_count(shared_.passed).blocks) {
    rank.any = true;
    return take(local_rank);
  }
  if (rank.any) return go(rank, RankAt::look);
  rank.at = RankAt::prepare_sleep;
  rank.running.begin<PrepareSleep<Memory>>(kGeneration, uint32_t{rank.taken}, 0u);
}

inline void Actors::take(uint32_t local_rank) {
  Rank& rank = state_.ranks[local_rank];
  uint8_t& at = place(local_rank, rank.taken);
  const auto number = static_cast<uint8_t>(rank.taken + 1);
  const bool is_there = setup_.common ? shared_.results[rank.taken % setup_.window] == number
                                      : at == (number | kResult);
  require(is_there, "no result lies there");
  if (!setup_.common) at = 0;
  ++rank.taken;
}

// ---- The worker ----

inline bool Actors::arrive() {
  if (worker_.at != WorkerAt::unbegun) return false;
  const SlotWord word = unpack(shared_.word);
  if (word.asleep) wake();
  shared_.word = pack(with_arrival(word, Phase::called));
  shared_.rung = true;
  go(WorkerAt::idle);
  return true;
}

inline bool Actors::step_worker() {
  switch (worker_.at) {
    case WorkerAt::unbegun:
      return false;
    case WorkerAt::idle:
      if (!shared_.rung) return false;
      shared_.rung = false;
      go(WorkerAt::look);
      return true;
    case WorkerAt::look:
      use();
      return true;
    case WorkerAt::lent:
      sent();
      return true;
    case WorkerAt::pass: {
      auto& passing = worker_.running.as<ReleaseWindow<Memory>>();
      if (passing.step(memory_) == Step::more) return true;
      if (passing.must_wake() && !injects(Fault::passes_without_waking)) wake();
      if (worker_.done == setup_.blocks)
        end(Phase::done);
      else
        go(WorkerAt::look);
      return true;
    }
    case WorkerAt::end: {
      auto& ending = worker_.running.as<EndOp<Memory>>();
      if (ending.step(memory_) == Step::more) return true;
      if (ending.must_wake() && !injects(Fault::ends_without_waking)) wake();
      go(WorkerAt::finished);
      return true;
    }
    case WorkerAt::finished:
      if (!worker_.reads) return use_results_again();
      read_windows();
      return true;
  }
  return false;
}

// A link starts to read the block that all windows hold.
inline void Actors::use() {
  const uint32_t asked = injects(Fault::passes_for_the_first_rank) ? 1 : setup_.ranks;
  for (uint32_t local_rank = 0; local_rank < asked; ++local_rank)
    if (shared_.ready[local_rank] == worker_.done) return go(WorkerAt::idle);
  worker_.reads = true;
  go(WorkerAt::lent);
}

// The link has read the block; the results are written to the windows.
inline void Actors::sent() {
  read_windows();
  if (worker_.failed) return end(Phase::failed);
  for (uint32_t local_rank = 0; local_rank < setup_.ranks; ++local_rank) {
    const bool is_taken = state_.ranks[local_rank].taken + setup_.window > worker_.done;
    require(is_taken, "a result is written over one that was not taken");
    uint8_t& at = place(local_rank, worker_.done);
    at = setup_.common ? 0 : at | kResult;
  }
  if (setup_.common)
    shared_.results[worker_.done % setup_.window] = static_cast<uint8_t>(worker_.done + 1);
  worker_.at = WorkerAt::pass;
  worker_.running.begin<ReleaseWindow<Memory>>(kGeneration, uint32_t{++worker_.done});
}

// Once all ranks have settled the operation.
inline bool Actors::use_results_again() {
  for (uint32_t local_rank = 0; local_rank < setup_.ranks; ++local_rank)
    if (!shared_.given_back[local_rank]) return false;
  if (shared_.results[0] == 0) return false;
  std::memset(shared_.results, 0, sizeof shared_.results);
  return true;
}

inline void Actors::read_windows() {
  worker_.reads = false;
  for (uint32_t local_rank = 0; local_rank < setup_.ranks; ++local_rank) {
    require(!shared_.given_back[local_rank], "a link reads a window that was given back");
    require(place(local_rank, worker_.done) == worker_.done + 1, "a link finds another block");
  }
}

inline bool Actors::fail() {
  const bool may = worker_.at == WorkerAt::unbegun || worker_.at == WorkerAt::idle ||
                   worker_.at == WorkerAt::look || worker_.at == WorkerAt::lent;
  if (!may || worker_.failed) return false;
  worker_.failed = true;
  const bool waits = worker_.reads && !injects(Fault::ends_while_a_link_reads);
  if (!waits) end(Phase::failed);
  return true;
}

inline void Actors::end(Phase verdict) {
  worker_.at = WorkerAt::end;
  worker_.running.begin<EndOp<Memory>>(kGeneration, verdict);
}

inline void Actors::wake() {
  for (Rank& rank : state_.ranks)
    if (rank.at == RankAt::asleep) go(rank, RankAt::look);
}

}  // namespace tutti::board::passing

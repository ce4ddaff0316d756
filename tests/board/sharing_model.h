// A model of the folds that a worker shares with the ranks of a host, small enough to run in every
// interleaving. The ranks and the worker run the procedures of daemon/board, one access of shared
// memory a step; ranks proceed as in client/operations, the worker as in daemon/session. The worker
// shares two folds of one operation, the second once the first is done. At any moment it may take a
// block back, the operation may fail, and a rank or the worker may die.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "daemon/board/board.h"
#include "tests/board/model.h"

namespace tutti::board::sharing {

using model::Running;

inline constexpr uint32_t kGeneration = 1;
inline constexpr uint32_t kRanksMax = 2;
inline constexpr uint32_t kBlocks = 2;  // Of a fold, which use the same indices.
inline constexpr uint32_t kFoldsMax = 2;

enum class Fault {
  none,
  publishes_without_waking,       // The worker wakes no sleeper.
  sleeps_without_reading_shared,  // The rank does not read `shared` again.
  announces_before_publishing,    // `shared` is stored first, then the blocks are published.
  finishes_without_calling,       // The last block's rank does not call the worker.
  counts_before_it_is_done,       // A block is counted, then marked as done.
  counts_without_number,          // A block is counted whatever fold the count is of.
  takes_back_without_counting,    // The worker does not count what it takes back.
  takes_back_what_is_held,        // The worker takes blocks back whatever their words say.
  ends_while_held,                // The failure is published while a rank folds.
  claims_without_exchange,        // Two ranks may claim one block.
  leaves_while_held,              // A rank whose worker is dead ends while another one folds.
};

struct Setup {
  uint32_t ranks = 2;
  uint32_t folds = 2;
  bool takes_back = false;
  bool fails = false;
  bool dies = false;         // Ranks may.
  bool worker_dies = false;  //
  Fault fault = Fault::none;
};

struct Shared {
  uint64_t word;
  uint64_t shared;
  uint64_t folds[kBlocks];
  uint64_t left;  // Of the first block.
  bool rung;
  // What only the checks read.
  uint8_t begun[kFoldsMax][kBlocks];
  uint8_t done[kFoldsMax][kBlocks];
  bool over;  // The operation ended.
  // A rank may have died between what it did and its count: the worker's timer helps then, as it
  // always does; without a death nobody may depend on it.
  bool rank_died;
  bool worker_dead;  // Which the kernel tells.
};

struct Memory {
  Shared& shared;
  Fault fault;

  uint64_t load_word() const { return shared.word; }
  bool exchange_word(uint64_t& seen, uint64_t next) const {
    return exchange(shared.word, seen, next);
  }
  uint64_t load_passed() const { return 0; }
  void store_shared(uint64_t value) const { shared.shared = value; }
  uint64_t load_shared() const {
    return fault == Fault::sleeps_without_reading_shared ? 0 : shared.shared;
  }
  uint32_t load_top() const { return kBlocks; }
  uint64_t load_fold(uint32_t index) const { return shared.folds[index]; }
  bool exchange_fold(uint32_t index, uint64_t& seen, uint64_t next) const {
    const bool claims = unpack_fold(next).state == FoldState::held;
    const bool takes = unpack_fold(next).state == FoldState::free;
    if (fault == Fault::claims_without_exchange && claims) seen = shared.folds[index];
    if (fault == Fault::takes_back_what_is_held && takes) seen = shared.folds[index];
    return exchange(shared.folds[index], seen, next);
  }
  uint64_t load_left(uint32_t) const { return shared.left; }
  bool exchange_left(uint32_t, uint64_t& seen, uint64_t next) const {
    return exchange(shared.left, seen, next);
  }
  void set_called() const {}
  void ring() const { shared.rung |= fault != Fault::finishes_without_calling; }

 private:
  static bool exchange(uint64_t& at, uint64_t& seen, uint64_t next) {
    if (at == seen) {
      at = next;
      return true;
    }
    seen = at;
    return false;
  }
};

enum class RankAt : uint8_t {
  look,
  claim,
  count_early,
  fold,
  finish,
  prepare_sleep,
  may_sleep,
  asleep,
  withdraw,
  finished
};
enum class WorkerAt : uint8_t {
  publish,
  announce,
  idle,
  collect,
  take_back,
  fold,
  cancel,
  end,
  finished
};

struct Rank {
  RankAt at;
  bool dead;
  bool any;       // It has folded since it looked.
  bool held;      // Another rank was seen to fold.
  uint8_t block;  // That it folds.
  uint8_t fold;
  uint32_t tried;
  Running running;
};

struct Worker {
  WorkerAt at;
  bool failed;
  uint8_t fold;     // That it shares.
  uint8_t block;    // That it publishes or takes back.
  uint8_t waiting;  // Bit a block: published and not collected.
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
    state.shared.word = pack(SlotWord{kGeneration, Phase::called, false, 2});
  }
  // For SmallExplorer: the steps of the ranks, then the worker's; and what may never come.
  static uint32_t moves(const Setup& setup) { return 2 * setup.ranks + kBlocks + 3; }
  static bool may_never_come(const Setup& setup, uint32_t move) { return move > setup.ranks; }
  bool move(uint32_t move) {
    const uint32_t ranks = setup_.ranks;
    if (move < ranks) return step_rank(move);
    if (move == ranks) return step_worker();
    if (move == ranks + 1) return setup_.fails && fail();
    if (move == ranks + 2) return setup_.worker_dies && kill_worker();
    if (move < ranks + 3 + kBlocks)
      return setup_.takes_back && take_back(static_cast<uint8_t>(move - ranks - 3));
    return setup_.dies && kill_rank(move - ranks - 3 - kBlocks);
  }
  // Nobody waits for the dead; with all of them dead, nobody waits for the worker.
  bool are_finished() const {
    for (uint32_t local_rank = 0; local_rank < setup_.ranks; ++local_rank)
      if (!state_.ranks[local_rank].dead && state_.ranks[local_rank].at != RankAt::finished)
        return false;
    return true;
  }

 private:
  // False: it can take no step.
  bool step_rank(uint32_t local_rank);
  bool step_worker();
  // The worker takes the block back that nobody has claimed.
  bool take_back(uint8_t block);
  bool fail();
  bool kill_rank(uint32_t local_rank);
  bool kill_worker();

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
  bool injects(Fault fault) const { return setup_.fault == fault; }
  static FoldWord ready() { return {FoldState::ready, 0, 0, 0}; }
  bool is_held() const {
    for (const Rank& rank : state_.ranks)
      if (!rank.dead && rank.at == RankAt::fold) return true;
    return false;
  }

  void look(uint32_t local_rank);
  void claim(uint32_t local_rank);
  void withdraw(Rank& rank);
  void leave(Rank& rank);
  void begin_fold(uint8_t fold, uint8_t block);
  void end_fold(uint8_t fold, uint8_t block);
  void finish_fold(uint32_t local_rank);
  void publish();
  void announce();
  void collect();
  void cancel();
  void end();
  void wake();

  const Setup& setup_;
  State& state_;
  Shared& shared_;
  Worker& worker_;
  Memory memory_;
  std::string& wrong_;
};

// ---- A rank ----

inline bool Actors::step_rank(uint32_t local_rank) {
  Rank& rank = state_.ranks[local_rank];
  if (rank.dead) return false;
  switch (rank.at) {
    case RankAt::look:
      look(local_rank);
      return true;
    case RankAt::claim:
      if (ends<ClaimFold<Memory>>(rank.running)) claim(local_rank);
      return true;
    case RankAt::count_early:
      shared_.left =
          pack(Count{unpack_count(shared_.left).generation, unpack_count(shared_.left).blocks - 1});
      if (unpack_count(shared_.left).blocks == 0) shared_.rung = true;
      rank.at = RankAt::fold;
      return true;
    case RankAt::fold:
      finish_fold(local_rank);
      return true;
    case RankAt::finish:
      if (ends<FinishFold<Memory>>(rank.running)) go(rank, RankAt::look);
      return true;
    case RankAt::prepare_sleep:
      if (!ends<PrepareSleep<Memory>>(rank.running)) return true;
      if (rank.running.as<PrepareSleep<Memory>>().may_sleep())
        rank.at = RankAt::may_sleep;
      else
        go(rank, RankAt::look);
      return true;
    case RankAt::may_sleep: {
      const auto low = static_cast<uint32_t>(rank.running.as<PrepareSleep<Memory>>().word());
      go(rank, low == static_cast<uint32_t>(shared_.word) ? RankAt::asleep : RankAt::look);
      return true;
    }
    case RankAt::asleep:  // Sleeps have time-outs, after which a rank looks after its worker.
      if (!shared_.worker_dead) return false;
      go(rank, RankAt::look);
      return true;
    case RankAt::withdraw:
      withdraw(rank);
      return true;
    case RankAt::finished:
      return false;
  }
  return false;
}

inline void Actors::look(uint32_t local_rank) {
  Rank& rank = state_.ranks[local_rank];
  if (is_over(unpack(shared_.word).phase)) return leave(rank);
  if (shared_.worker_dead) {
    rank.block = 0;
    rank.held = false;
    return go(rank, RankAt::withdraw);
  }
  rank.tried = unpack_count(shared_.shared).blocks;
  rank.at = RankAt::claim;
  rank.running.begin<ClaimFold<Memory>>(kGeneration, local_rank, ready());
}

inline void Actors::claim(uint32_t local_rank) {
  Rank& rank = state_.ranks[local_rank];
  const auto claim = rank.running.as<ClaimFold<Memory>>();
  if (!claim.claimed()) {
    rank.at = RankAt::prepare_sleep;
    return rank.running.begin<PrepareSleep<Memory>>(kGeneration, 0u, rank.tried);
  }
  rank.block = static_cast<uint8_t>(claim.index());
  rank.fold = worker_.fold;  // As the description of a block that is held says.
  begin_fold(rank.fold, rank.block);
  go(rank, injects(Fault::counts_before_it_is_done) ? RankAt::count_early : RankAt::fold);
}

inline void Actors::finish_fold(uint32_t local_rank) {
  Rank& rank = state_.ranks[local_rank];
  end_fold(rank.fold, rank.block);
  if (injects(Fault::counts_before_it_is_done)) {
    shared_.folds[rank.block] = pack(FoldWord{FoldState::done, 0, 0, 0});
    return go(rank, RankAt::look);
  }
  const bool blind = injects(Fault::counts_without_number);
  const uint32_t number = blind ? 0u : rank.fold + 1u;
  rank.at = RankAt::finish;
  rank.running.begin<FinishFold<Memory>>(kGeneration, uint32_t{rank.block},
                                         FoldWord{FoldState::held, local_rank, 0, 0}, 0u, number);
}

// The worker is dead: its blocks are taken back, and what others hold is waited for.
inline void Actors::withdraw(Rank& rank) {
  TakeFoldBack<Memory> taking(kGeneration, rank.block, ready(), 0, 0);
  taking.step(memory_);
  rank.held |= taking.seen().state == FoldState::held;
  if (++rank.block != kBlocks) return;
  const bool waits = rank.held && !injects(Fault::leaves_while_held);
  if (!waits) return leave(rank);
  go(rank, RankAt::look);
}

inline void Actors::leave(Rank& rank) {
  require(!is_held(), "a rank goes on while another folds");
  go(rank, RankAt::finished);
}

inline void Actors::begin_fold(uint8_t fold, uint8_t block) {
  require(shared_.begun[fold][block]++ == 0, "a block is folded twice");
  require(!shared_.over, "a block is folded after the end");
  for (uint8_t other = 0; fold == 1 && other < kBlocks; ++other)
    require(shared_.done[0][other] == 1, "a fold begins before its sources are there");
}

inline void Actors::end_fold(uint8_t fold, uint8_t block) {
  require(!shared_.over, "a block is written after the end");
  ++shared_.done[fold][block];
}

inline bool Actors::kill_rank(uint32_t local_rank) {
  Rank& rank = state_.ranks[local_rank];
  if (rank.dead || rank.at == RankAt::finished) return false;
  rank.dead = true;
  rank.running.clear();
  shared_.rank_died = true;
  return true;
}

// ---- The worker ----

inline bool Actors::step_worker() {
  if (shared_.worker_dead) return false;
  switch (worker_.at) {
    case WorkerAt::publish:
      publish();
      return true;
    case WorkerAt::announce:
      announce();
      return true;
    case WorkerAt::idle:
      if (!shared_.rung && !shared_.rank_died) return false;
      shared_.rung = false;
      worker_.block = 0;
      go(WorkerAt::collect);
      return true;
    case WorkerAt::collect:
      collect();
      return true;
    case WorkerAt::take_back: {
      auto& taking = worker_.running.as<TakeFoldBack<Memory>>();
      const bool had = taking.taken();
      const Step step = taking.step(memory_);
      if (taking.taken() && !had) begin_fold(worker_.fold, worker_.block);
      if (injects(Fault::takes_back_without_counting) ? false : step == Step::more) return true;
      const bool taken = taking.taken();
      if (!taken) worker_.block = 0;
      go(taken ? WorkerAt::fold : WorkerAt::collect);
      return true;
    }
    case WorkerAt::fold:
      end_fold(worker_.fold, worker_.block);
      worker_.waiting &= static_cast<uint8_t>(~(1U << worker_.block));
      worker_.block = 0;
      go(WorkerAt::collect);
      return true;
    case WorkerAt::cancel:
      cancel();
      return true;
    case WorkerAt::end: {
      auto& ending = worker_.running.as<EndOp<Memory>>();
      if (ending.step(memory_) == Step::more) return true;
      if (ending.must_wake()) wake();
      shared_.over = true;
      go(WorkerAt::finished);
      return true;
    }
    case WorkerAt::finished:
      return false;
  }
  return false;
}

inline void Actors::publish() {
  if (worker_.block == 0) shared_.left = pack(Count{worker_.fold + 1u, kBlocks});
  const bool late = injects(Fault::announces_before_publishing);
  if (late && worker_.block == 0)
    shared_.shared = pack(Count{kGeneration, (worker_.fold + 1) * kBlocks});
  worker_.waiting |= static_cast<uint8_t>(1U << worker_.block);
  shared_.folds[worker_.block] = pack(ready());
  if (++worker_.block != kBlocks) return;
  if (late) return go(WorkerAt::idle);
  worker_.at = WorkerAt::announce;
  worker_.running.begin<AnnounceFolds<Memory>>(kGeneration, (worker_.fold + 1u) * kBlocks);
}

inline void Actors::announce() {
  auto& announcing = worker_.running.as<AnnounceFolds<Memory>>();
  if (announcing.step(memory_) == Step::more) return;
  if (announcing.must_wake() && !injects(Fault::publishes_without_waking)) wake();
  worker_.block = 0;
  go(WorkerAt::collect);
}

// Looks at one block. A dead rank's block is lost.
inline void Actors::collect() {
  if (worker_.block == kBlocks) {
    if (worker_.waiting != 0) return go(WorkerAt::idle);
    worker_.block = 0;
    if (++worker_.fold != setup_.folds) return go(WorkerAt::publish);
    --worker_.fold;
    return end();
  }
  const uint8_t bit = static_cast<uint8_t>(1U << worker_.block);
  const FoldWord word = unpack_fold(shared_.folds[worker_.block]);
  if (word.state == FoldState::held && state_.ranks[word.holder].dead) {
    worker_.failed = true;
    worker_.block = 0;
    return go(WorkerAt::cancel);
  }
  if ((worker_.waiting & bit) != 0 && word.state == FoldState::done) {
    worker_.waiting &= static_cast<uint8_t>(~bit);
    shared_.folds[worker_.block] = pack(FoldWord());
  }
  ++worker_.block;
}

inline bool Actors::take_back(uint8_t block) {
  const bool at_rest = worker_.at == WorkerAt::idle && !shared_.worker_dead;
  if (!at_rest || (worker_.waiting >> block & 1) == 0) return false;
  worker_.block = block;
  worker_.at = WorkerAt::take_back;
  worker_.running.begin<TakeFoldBack<Memory>>(kGeneration, uint32_t{block}, ready(), 0u,
                                              worker_.fold + 1u);
  return true;
}

inline bool Actors::fail() {
  const bool at_rest = worker_.at == WorkerAt::idle && !shared_.worker_dead;
  if (!at_rest || worker_.failed) return false;
  worker_.failed = true;
  worker_.block = 0;
  go(WorkerAt::cancel);
  return true;
}

// Takes one block back, or waits for it; in the end, publishes the failure.
inline void Actors::cancel() {
  if (worker_.block == kBlocks) return end();
  TakeFoldBack<Memory> taking(kGeneration, worker_.block, ready(), 0, 0);
  taking.step(memory_);
  const FoldWord& seen = taking.seen();
  const bool waits = !taking.taken() && seen.state == FoldState::held &&
                     !state_.ranks[seen.holder].dead && !injects(Fault::ends_while_held);
  if (!waits) ++worker_.block;
}

inline void Actors::end() {
  worker_.at = WorkerAt::end;
  worker_.running.begin<EndOp<Memory>>(kGeneration, worker_.failed ? Phase::failed : Phase::done);
}

inline bool Actors::kill_worker() {
  const bool folds = worker_.at == WorkerAt::fold || worker_.at == WorkerAt::take_back;
  if (shared_.worker_dead || worker_.at == WorkerAt::finished || folds) return false;
  shared_.worker_dead = true;
  worker_.running.clear();
  return true;
}

inline void Actors::wake() {
  for (Rank& rank : state_.ranks)
    if (rank.at == RankAt::asleep) go(rank, RankAt::look);
}

}  // namespace tutti::board::sharing

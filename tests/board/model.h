// A model of one group's board, its ranks and its worker, small enough to run in every
// interleaving. The ranks and the worker run the procedures of daemon/board/transitions.h, one
// access of shared memory a step, and ranks may die at every step. actors.h has
// their steps.
//
// A rank that stops takes no step, which some interleaving covers at every state. Deadlines may
// pass at the moments that Setup::deadlines allows.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <type_traits>

#include "daemon/board/transitions.h"
#include "tests/board/setup.h"

namespace tutti::board::model {

inline constexpr uint32_t kRanks = 3;
inline constexpr uint32_t kSlots = 2;
inline constexpr uint32_t kOps = 4;
inline constexpr uint32_t kBlocks = 2;
inline constexpr uint32_t kWorker = kRanks;
inline constexpr uint8_t kGone = 0xff;  // Settled on behalf of a dead rank.
inline constexpr uint8_t kOdd =
    100;  // A request that disagrees with the others' is this plus its number.
inline constexpr uint8_t kTorn = 0x7f;  // A request that is being written.

// Shared memory, and below it state that only the checks read.
struct Shared {
  uint64_t word[kSlots];
  uint64_t claimed[kSlots];
  uint64_t blocks[kSlots];
  uint64_t folded[kSlots];
  uint8_t arrived[kSlots][kRanks];
  uint8_t request[kSlots][kRanks];  // The number of the call; see kOdd.
  uint8_t holding[kSlots][kRanks];
  uint8_t failure[kSlots];  // Number + 1 of the operation whose failure is written.
  uint8_t settled[kRanks];
  bool ranks_decide;
  uint8_t called;  // Bit a slot.
  bool rung;
  bool epoch_over;

  uint8_t came[kOps];            // Bit a rank: it has written its request.
  uint8_t begun[kOps][kBlocks];  // How often the folding of each block began,
  uint8_t folds[kOps][kBlocks];  // and ended.
  Phase verdict[kOps];           // As the first rank saw it; else open.
  uint8_t diverted;              // Bit a slot: ranks must not begin to fold there.
  uint8_t given_up;  // Bit a rank: it held a block past its deadline, and the epoch ended.
};

enum class RankAt : uint8_t {
  choose,
  arrive,
  fold,
  end,
  let_go,
  wait,
  claim,
  finish,
  complete,
  call,
  late_hold,
  early_let_go,
  read_failure,
  settle,
  finished
};

// The one procedure that an actor runs. Unused bytes are zero, so that equal states have equal
// bytes.
struct alignas(8) Running {
  unsigned char bytes[160];

  template <class Procedure, class... Args>
  void begin(const Args&... args) {
    static_assert(sizeof(Procedure) <= sizeof(bytes) && std::is_trivially_copyable_v<Procedure>);
    clear();
    new (bytes) Procedure(args...);
  }
  template <class Procedure>
  Procedure& as() {
    return *std::launder(reinterpret_cast<Procedure*>(bytes));
  }
  void clear() { std::memset(bytes, 0, sizeof bytes); }
};

struct Rank {
  RankAt at;
  bool dead;
  bool refused;   // Its last arrival found the slot in use.
  bool barred;    // It calls no more: the epoch is over.
  bool solo;      // It folds all blocks by itself.
  bool half;      // Between the two halves of folding a block.
  bool counted;   // It counted itself in.
  bool decides;   // For Fault::stale_ranks_decide: the value that it read.
  uint8_t next;   // The operation it calls next.
  uint8_t waits;  // The oldest that it has not settled.
  uint8_t block;  // That it folds.
  uint8_t blocks;
  Running running;
};

enum class WorkerAt : uint8_t {
  rest,
  take,
  settle_gone,
  divert,
  look,
  call,
  judge,
  clear,
  resume,
  dead_holders,
  stop,
  holders,
  complete,
  write_failure,
  end
};

struct Worker {
  WorkerAt at;
  uint8_t todo;  // Bit a slot.
  uint8_t gone;  // Bit a rank: deaths that it has learned of.
  bool late;     // The deadline of the operation in `slot` has passed.
  bool held;
  bool ends_epoch;
  uint8_t slot;
  uint8_t number;
  uint8_t member;
  uint8_t arrived;  // Bit a rank.
  Running running;
};

struct State {
  Shared shared;
  Rank ranks[kRanks];
  Worker worker;
};
static_assert(std::is_trivially_copyable_v<State>);

inline uint32_t generation_of(uint32_t number) { return board::generation_of(number, kSlots); }
inline constexpr bool has(uint32_t bits, uint32_t bit) { return (bits >> bit & 1) != 0; }

// One step of one actor: the state that it changes, and its first violation.
struct Context {
  const Setup& setup;
  State& state;
  std::string violation;
  uint32_t touches = 0;  // Of shared memory.

  void require(bool holds, const char* what) {
    if (!holds && violation.empty()) violation = what;
  }
  uint32_t everyone() const { return (1U << setup.ranks) - 1; }
};

}  // namespace tutti::board::model

// The configuration of an exploration: ranks and operations, which ranks may die, stop or call, and
// the fault that is injected.
#pragma once

#include <cstdint>

namespace tutti::board::model {

// A fault that is injected. The explorer must find each.
enum class Fault : uint8_t {
  none,
  arrivals_are_not_compared,   // The worker accepts any request as one of its operation.
  words_by_store,              // A concurrent change of the word is overwritten.
  claims_by_store,             //
  counts_by_store,             // Of folded blocks.
  counts_reset_twice,          // Laying out blocks twice resets the folded count twice.
  counts_without_generations,  // Counts of an older generation are taken for this generation's.
  claims_open_early,           // Before the word's phase is `folding`.
  claims_open_over_a_stop,     // Opening overwrites the stop.
  stop_leaves_unopened,        // Claims that were not opened yet are not stopped.
  holding_after_the_claim,     //
  alone_without_holding,       // A rank that folds alone does not publish it.
  lets_go_before_counting,     // A block is released before it is counted.
  holders_are_not_awaited,     // The worker fails an operation while a rank folds.
  epoch_goes_on,               // Although a rank that was given up may fold.
  completed_by_last_alone,     // Only the last folder ends the operation.
  settled_is_not_asked,        // A slot is reopened without reading `settled`.
  settles_at_arrival,          //
  settles_before_the_failure,  // A rank settles, then reads the failure.
  dead_never_settle,           //
  failure_after_the_word,      //
  ranks_decide_is_not_read,    // A rank that arrived does not read ranks_decide.
  stale_ranks_decide,          // ranks_decide is read before the word.
  no_diversion,                // The worker does not call open operations after a death.
  waiting_never_calls,         // Waiting ranks never call the worker.
};

// When deadlines pass. A rank that takes no step has stopped.
enum class Deadlines : uint8_t {
  never,
  late,  // When all ranks but a slow one wait.
  any,   // At any moment.
};

struct Setup {
  uint32_t ranks = 2;
  uint32_t ops = 2;
  uint32_t blocks = 1;     // Of every operation; 0: nothing to fold.
  bool alone = false;      // The last to arrive folds everything.
  bool pipelined = false;  // All calls are made before the first is waited for.
  uint32_t mortal = 0;     // Bit a rank: it may die.
  Deadlines deadlines = Deadlines::never;
  uint32_t slow = 7;       // Bit a rank: it may stop for longer than a deadline.
  uint32_t impatient = 7;  // Bit a rank: it may call the worker whenever it waits.
  bool sleepers = false;   // Ranks that wait sleep.
  bool diverted = false;   // Ranks do not decide, from the start.
  int disagree_at = -1;    // The operation where rank 0 asks for something else.
  Fault fault = Fault::none;
};

}  // namespace tutti::board::model

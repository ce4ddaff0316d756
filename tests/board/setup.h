// What is explored of the board: how many ranks and operations, who dies, stops or calls, and which
// fault is put back.
#pragma once

#include <cstdint>

namespace tutti::board::model {

// What a mutant does wrong. The explorer must find each.
enum class Fault : uint8_t {
  none,
  stamps_are_not_compared,     // The worker takes any request for one of the operation it looks at.
  words_by_store,              // Whatever another made of the word is overwritten.
  claims_by_store,             //
  counts_by_store,             // Of folded blocks.
  counts_reset_twice,          // Who lays out blocks overwrites what was folded.
  counts_without_turns,        // Those of an older turn are taken for this one's.
  claims_open_early,           // Before the word says that the ranks fold.
  claims_open_over_a_stop,     // Whatever was there is overwritten.
  stop_leaves_unopened,        // Claims that were not opened yet are not stopped.
  holding_after_the_claim,     //
  alone_without_holding,       // Who folds all by itself does not say so.
  lets_go_before_counting,     // A block is not held any more, and not counted yet.
  holders_are_not_awaited,     // The worker fails what somebody folds.
  epoch_goes_on,               // Though somebody folds who was given up.
  completed_by_last_alone,     // Nobody else ends an operation whose blocks are folded.
  settled_is_not_asked,        // A slot is opened again at once.
  settles_at_arrival,          //
  settles_before_the_failure,  // A rank settles, then reads why it failed.
  dead_never_settle,           //
  failure_after_the_word,      //
  no_look_around,              // A rank that arrived does not look whether ranks decide.
  decides_by_old_news,         // Whether ranks decide is read before the word.
  no_diversion,                // A death leaves open operations as they are.
  no_patience,                 // A rank that waits never calls.
};

// When deadlines pass. Whoever does not step is stopped.
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

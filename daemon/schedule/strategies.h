// Inside the room: what a strategy is made of. A plan has up to two levels; on each, a strategy
// gives every member its steps for one phase, and beside them, in closed form, what they cost.
#pragma once

#include <vector>

#include "daemon/schedule/schedule.h"

namespace tutti {

// The chunks that belong to each member of a level, by position. A member's share travels together.
using Shares = std::vector<std::vector<int>>;

// How many those are, by position: all that costs depend on.
using Sizes = std::vector<int>;

int chunks_in(const Shares& shares);

struct Level;

// The cost of a level's phases so far, by position.
struct Tally {
  explicit Tally(size_t members) : clock(members), sent(members), received(members) {}
  std::vector<int> clock;     // The longest chain of messages the member has waited for.
  std::vector<int> sent;      // Chunks.
  std::vector<int> received;  // Chunks.
};

// One phase of one level: `steps` appends those of the member at `position`; `cost` adds those of
// all members, given how many chunks those shares hold.
struct Form {
  void (*steps)(const Level& level, int position, const Shares& shares, std::vector<Step>& out);
  void (*cost)(const Level& level, const Sizes& sizes, Tally& tally);
};

// What a strategy can do on a level. `reduce` to `scatter` are rooted: position 0 collects or
// hands out. The others leave nobody out, and where they combine they
// finish every chunk.
struct Forms {
  Form reduce;          // Everyone's values of all chunks, combined, to position 0.
  Form gather;          // Every member's share, to position 0.
  Form broadcast;       // From position 0, to each member what is outside its own subtree's shares.
  Form scatter;         // From position 0, to each member its share.
  Form all_reduce;      // All chunks, combined, to everyone.
  Form all_gather;      // All shares to everyone.
  Form reduce_scatter;  // Its share, combined, to each member.
  Form barrier;         // As all_reduce, of a single chunk.
  bool splits = false;  // Whether all_reduce wants one chunk a member; else it wants one in all.
};

// The ranks that work together, by position: the root or leader of the level first, then ascending.
struct Level {
  std::vector<int> ranks;
  int arity = 1;  // Of the heap behind the rooted forms.
  Forms forms;
};

Forms tree_forms();
Forms ring_forms();
Forms forms_of(StrategyKind kind);
Level level_of(const Strategy& strategy, std::vector<int> ranks);

}  // namespace tutti

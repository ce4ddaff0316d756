// Inside the room: the parts of a strategy. It gives every host its steps and, in closed form,
// their cost.
#pragma once

#include <vector>

#include "daemon/schedule/schedule.h"

namespace tutti {

// The chunks that belong to each member of a level, by position. A member's chunks travel together.
using Shares = std::vector<std::vector<int>>;

// The number of chunks of each share, by position. Costs depend on nothing else of it.
using Sizes = std::vector<int>;

using Steps = std::vector<Step>;

struct Level;

// The cost of the steps counted so far, by position.
struct Tally {
  explicit Tally(size_t members) : clock(members), sent(members), received(members) {}
  int empty_rounds = 0;       // Of the longest chain, those that carry no chunk.
  std::vector<int> clock;     // The longest chain of messages the member has waited for.
  std::vector<int> sent;      // Chunks.
  std::vector<int> received;  // Chunks.
};

// One collective: `steps` appends those of the member at `position`; `cost` adds those of all
// members, given how many chunks those shares hold.
struct Form {
  void (*steps)(const Level& level, int position, const Shares& shares, Steps& out);
  void (*cost)(const Level& level, const Sizes& sizes, Tally& tally);
};

// A strategy: its form of each collective. Those with a root are rooted at position 0. Forms that
// combine finish every chunk. All keep the promise of agreement (schedule.h).
struct Forms {
  Form reduce;          // Everyone's values of all chunks, combined, to position 0.
  Form broadcast;       // All chunks from position 0, whose shares they are, to everyone.
  Form all_reduce;      // All chunks, combined, to everyone.
  Form all_gather;      // All shares to everyone.
  Form reduce_scatter;  // Its share, combined, to each member.
  Form barrier;         // As all_reduce, of a single chunk.
  Form gather;          // All shares to position 0.
  Form scatter;         // Its share from position 0 to each member.
  Form all_to_all;      // From each member to each other one, the blocks of their ranks.
  bool splits = false;  // Whether all_reduce wants one chunk a member; else it wants one in all.
};

// The hosts, by position: the root's first, then in the order of their lowest ranks.
struct Level {
  std::vector<int> members;
  int arity = 1;  // Of the heap behind the rooted forms.
  Forms forms;
};
inline int size_of(const Level& level) { return static_cast<int>(level.members.size()); }

Forms tree_forms();
Forms ring_forms();
Form exchange_form();
Forms forms_of(StrategyKind kind);
Level level_of(const Strategy& strategy, std::vector<int> members);

// Reproducible plans, of at least two hosts: see rank_order.cc.
namespace rank_order {
bool splits(const Plan& plan);  // Whether an all_reduce has one chunk a host.
Steps steps_of(const Plan& plan, int host);
void cost(const Plan& plan, Tally& tally);  // By host.
}  // namespace rank_order

}  // namespace tutti

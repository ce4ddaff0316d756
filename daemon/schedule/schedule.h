// Schedules are data: a strategy is a pure function from a plan and a rank to the steps that rank
// takes.
//
// Nothing here knows of bytes, types, links or threads. The engine runs what this room writes; the
// checker in checker.h proves it over symbols first. To add a strategy: a StrategyKind, one file,
// one line in strategies.cc.
//
// CONTRACT OF THE STEPS. A rank holds, per chunk, a value: its own contribution at first (if the
// plan gives it one).
//   send         the current value of `chunk` goes to `peer`; never waits
//   recv         the current value of `chunk` becomes what `peer` sent
//   recv_reduce  the current value of `chunk` becomes (current op received), in this order
//   finish       this rank's value of `chunk` is complete: divide (MEAN) and round; once per chunk
//                over all ranks, before any copy of the complete value leaves. Nothing is finished
//                where nothing is combined (broadcast, all_gather)
// The k-th send from a to b meets the k-th recv or recv_reduce at b from a, and names the same
// chunk. A rank never changes a chunk it sent before the receiver has provably taken it, so sends
// may borrow memory. That holds for each chunk by itself: the proof never leans on another chunk's
// messages.
//
// THE FORMS, with their rounds and the most chunks that one member sends. n: members on a level
// (the ranks of a lone host, else one leader a host). D: the depth of a k-ary heap of n, which is
// in rank order, root first; 1 for Centralized, where k = n-1, and n-1 for Tree(1), the chain.
//
//   collective      Centralized and Tree(k)                   Ring
//   all_reduce      1 chunk, up and down the heap:            n chunks, reduce-scatter ring, then
//                   2D rounds, at most k+1 chunks             all-gather ring: 2(n-1), 2(n-1)
//   reduce          1 chunk, up the heap: D, 1                nearest: the chain: n-1, 1
//   broadcast       1 chunk, down the heap: D, at most k      nearest: the chain: n-1, 1
//   all_gather      n chunks; nearest: blocks up the heap,    n chunks, all-gather ring: n-1, n-1
//                   and down what a subtree lacks: 2D
//   reduce_scatter  n chunks; nearest: all up the heap, and   n chunks, reduce-scatter ring:
//                   down each its block: 2D                   n-1, n-1
//   barrier         1 empty chunk, as all_reduce: 2D          nearest: the chain: 2(n-1), 2
//
// Two levels: each host up to its leader, the form above among leaders, each host down again.
// Inside a host the first and last phases are rooted, so a local Ring is the chain there (when
// there is one host only, its ranks are the level and Ring is the ring). A host's blocks travel
// together between leaders. Exact costs: beside the forms, in tree.cc and ring.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/status.h"
#include "proto/types.h"

namespace tutti {

enum class StrategyKind : uint8_t {
  automatic = TUTTI_AUTO,  // Resolved by the group's leader before a plan is made; never in a Plan.
  centralized = TUTTI_CENTRALIZED,
  tree = TUTTI_TREE,
  ring = TUTTI_RING,
};

inline constexpr uint32_t kArityMax = (1u << 24) - 1;  // What a request in shared memory can hold.

struct Strategy {
  StrategyKind kind = StrategyKind::automatic;
  uint32_t arity = 0;  // Tree only, >= 1.
  auto operator<=>(const Strategy&) const = default;
};

// Local: among the ranks of one host. Global: among one leader a host.
struct Strategies {
  Strategy local;
  Strategy global;
  auto operator<=>(const Strategies&) const = default;
};

// "ring", "centralized", "tree:3", "auto"; also the JSON forms "Ring", "Centralized", {"Tree":3}.
// INVALID_ARGUMENT with the forms that exist for anything else; "tree:0" says that arity must be
// >= 1.
Result<Strategy> parse_strategy(std::string_view text);
// One strategy for both levels, or "LOCAL,GLOBAL", each in either form.
Result<Strategies> parse_strategies(std::string_view text);
std::string to_string(const Strategy& strategy);
std::string to_string(const Strategies& strategies);  // "ring" where both are the same, else "a,b".

// What to do and with whom. Ranks are 0..n-1; `hosts` lists every rank exactly once, each host's
// ranks ascending, no host empty. A host's leader is the root where the root lives there, else its
// lowest rank.
struct Plan {
  Collective collective = Collective::all_reduce;
  int root = 0;  // For reduce and broadcast.
  Strategies strategies;
  std::vector<std::vector<int>> hosts;
  auto operator<=>(const Plan&) const = default;
};

int world_size(const Plan& plan);
int leader_of(const Plan& plan, int host);

// How many chunks the tensor is cut into. all_gather and reduce_scatter: one per rank, chunk r
// being rank r's block. Elsewhere the tensor is split evenly (first chunks one element longer), and
// chunks may be empty: one chunk a member where Ring does an all_reduce, else one in all.
int chunk_count(const Plan& plan);

// Whether the rank has a contribution to / must end with the complete value of the chunk.
bool contributes(const Plan& plan, int rank, int chunk);
bool wants(const Plan& plan, int rank, int chunk);

enum class StepKind : uint8_t { send, recv, recv_reduce, finish };

struct Step {
  StepKind kind;
  int peer;  // -1 for finish.
  int chunk;
  bool operator==(const Step&) const = default;
};

// The rank's steps. `plan` must be well formed (require).
std::vector<Step> steps_of(const Plan& plan, int rank);

// What a strategy promises, asserted by the checker: the longest chain of messages any value waits
// for where each rank takes its steps in order, the largest number of chunks one rank sends, and
// receives, and how many all send together (the copies inside a host count as messages). In closed
// form: no steps are made.
struct Cost {
  int rounds = 0;
  int sent_chunks_max = 0;
  int received_chunks_max = 0;
  int64_t sent_chunks_sum = 0;
};
Cost cost_of(const Plan& plan);

// The hosts that a plan's leaders work with, by their places in `hosts`: for a ring each and the
// next one, for a heap each and its parent. Empty where there is one host only.
std::vector<std::pair<int, int>> host_pairs(const Plan& plan);

// One host's share of a plan, merged: what a worker runs. Steps between two ranks of the host
// become moves of memory; the order is one in which the host never waits for itself: a recv from
// another host comes only when nothing else on this host can go on. Moves between hosts keep their
// rank's order, so hosts cannot deadlock if ranks could not. Taken one after the other, in order,
// the moves need no state of another host.
enum class MoveKind : uint8_t {
  fold,         // value(rank, chunk) = value(rank) op value(others[0]) op value(others[1]) ...
  spread,       // value(r, chunk) = value(rank, chunk) for r in others, which ascend
  send,         // rank's value goes to `peer` on another host
  recv,         // rank's value becomes what `peer` sent
  recv_reduce,  // rank's value becomes (value op received)
  finish,       // rank's value is complete
};

struct Move {
  MoveKind kind;
  int rank;
  int peer = -1;
  int chunk = 0;
  int ordinal = 0;  // send, recv*: how many messages the sender sent the receiver before it.
  std::vector<int> others;  // fold, spread.
  bool operator==(const Move&) const = default;
};

std::vector<Move> moves_of(const Plan& plan, int host);

}  // namespace tutti

// Schedules are data: a strategy is a pure function from a plan and a host to the steps that this
// host takes.
//
// This room knows no bytes, types, links or threads. The engine runs the steps; the checker in
// checker.h proves them over symbols. A strategy is one file beside ring.cc; docs/architecture.md
// says what else names it.
//
// CONTRACT OF THE STEPS. Hosts are named by their places in the plan. A host holds, per chunk, a
// value: what its local phase made of its ranks' contributions at first (if it has any).
//   send         the current value of `chunk` goes to `peer`; never waits
//   recv         the current value of `chunk` becomes what `peer` sent
//   recv_reduce  the current value of `chunk` becomes (current op received), in this order
//   take         the current value of `chunk` becomes the contributions of some of the host's
//                ranks, combined one by one; only in a reproducible plan
//   add          the current value of `chunk` becomes (current op those), one by one; as take
//   pack         what is sent of `chunk` next is a copy of those side by side, uncombined: they
//                travel as one message, and the receiver combines them one by one. The host has no
//                value of the chunk then; only in a raw plan
//   finish       this host's value of `chunk` is complete: divide (MEAN) and round; once per chunk
//                over all hosts, before any copy of the complete value leaves; in a raw plan once
//                on each host that wants the chunk, and no complete value leaves. Nothing is
//                finished where nothing is combined (broadcast, all_gather, gather, scatter,
//                all_to_all)
//   notify       an empty message goes to `peer`; never waits
//   await        takes an empty message of `peer`
// The k-th send or notify from a to b meets the k-th recv, recv_reduce or await at b from a, of the
// same kind and chunk. A host never changes a chunk it sent before the receiver has provably taken
// it, so sends may borrow memory. That holds for each chunk by itself: the proof never leans on
// another chunk's messages. What is packed is a copy, and lends nothing. A host alone has no steps:
// its local phase ends with the result.
//
// AGREEMENT. Hosts start an operation without asking each other, and compare its signature with
// every message that they take. No host finishes its steps before every host has started, along a
// chain of such messages; so, hop by hop, all signatures have been compared. While any host has not
// started, or differs, no host has completed, and all can still fail. Chunks other than the first
// may be empty and are then left out: the promise does not lean on them, except where chunks are
// ranks' blocks, which are sent, once, even if they are empty. Where data alone would not keep it
// (reduce, gather, broadcast, scatter) empty messages do; and no data of a broadcast or scatter
// goes to a host that is not ready for it.
//
// THE FORMS, with their rounds and the most chunks that one host sends. n: hosts. D: the depth of a
// k-ary heap of n, which is in the order of the hosts' lowest ranks, the root's first; 1 for
// Centralized, where k = n-1, and n-1 for Tree(1), the chain. A collective without a ring form runs
// as a chain under Ring.
//
//   collective      Centralized and Tree(k)                   Ring
//   all_reduce      1 chunk, up and down the heap:            n chunks, reduce-scatter ring, then
//                   2D rounds, at most k+1 chunks             all-gather ring: 2(n-1), 2(n-1)
//   reduce          1 chunk, up the heap, then "complete"     no ring form; chain: 2(n-1), 1
//                   down it: 2D, 1
//   broadcast       "ready" up the heap, then 1 chunk         no ring form; chain: 2(n-1), 1
//                   down it: 2D, at most k
//   all_gather      a chunk a rank: blocks up the heap, and   a chunk a rank, all-gather ring: n-1,
//                   down what a subtree lacks: 2D             all but the next host's
//   reduce_scatter  a chunk a rank: all up the heap,          a chunk a rank, reduce-scatter ring:
//                   and down each its block: 2D               n-1, all but its own
//   barrier         1 empty chunk, as all_reduce: 2D          no ring form; chain: 2(n-1), 2
//   gather          a chunk a rank: blocks up the heap,       no ring form; chain: 2(n-1), all but
//                   then "complete" down it: 2D               the root's
//   scatter         "ready" up the heap, then down it each    no ring form; chain: 2(n-1), all but
//                   rank's block, a chunk each: 2D            the root's
//   all_to_all      a chunk for each pair of ranks, from      the same
//                   host to host directly: 1
//
// A host's blocks travel together. Exact costs: beside the forms, in tree.cc and ring.cc.
//
// REPRODUCIBLE PLANS reduce in the order of the ranks, ((x0 op x1) op x2) ..., whatever the hosts
// and the strategy, which chooses the movement alone: see rank_order.cc. There a host has no value
// of a chunk at first, and each rank's contribution is taken or added by itself.
//
// THE LOCAL PHASE is no movement: a local strategy is only the order in which a host's ranks are
// folded, which is the board's business.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/base/strategy.h"
#include "proto/types.h"

namespace tutti {

// What to do and with whom. Ranks are 0..n-1; `hosts` lists every rank exactly once, each host's
// ranks ascending, no host empty.
struct Plan {
  Collective collective = Collective::all_reduce;
  int root = 0;  // Where the collective has one.
  Strategies strategies;
  std::vector<std::vector<int>> hosts;
  bool reproducible = false;  // Only where the collective reduces.
  // Each rank's contribution goes by itself to every host that wants the result, which combines
  // them all. The fewest rounds, for small tensors. Only where reproducible, and Centralized.
  bool raw = false;
  auto operator<=>(const Plan&) const = default;
};

int world_size(const Plan& plan);
// Whether every host has one rank.
bool has_lone_ranks(const std::vector<std::vector<int>>& hosts);
int host_of(const Plan& plan, int rank);

// How many chunks the tensor is cut into. Where it consists of blocks, they are the chunks
// (base/blocks.h). Elsewhere it is split evenly (first chunks one element longer), and chunks may
// be empty: one chunk a host where Ring does an all_reduce (a reproducible one: where each host has
// one rank), else one in all.
int chunk_count(const Plan& plan);

// Whether the rank has a contribution to / must end with the complete value of the chunk.
bool contributes(const Plan& plan, int rank, int chunk);
bool wants(const Plan& plan, int rank, int chunk);
// Whether any rank of the host has / must.
bool host_contributes(const Plan& plan, int host, int chunk);
bool host_wants(const Plan& plan, int host, int chunk);

enum class StepKind : uint8_t { send, recv, recv_reduce, finish, notify, await, take, add, pack };

struct Step {
  StepKind kind;
  int peer;  // A host; -1 for finish, take, add and pack.
  int chunk;
  // For take, add and pack: the host's ranks [first, first + ranks), by their places on it. `ranks`
  // of a send, recv and recv_reduce: how many contributions are side by side; 0: a value.
  int first = 0;
  int ranks = 0;
  bool operator==(const Step&) const = default;
};

// The host's steps. `plan` must be well formed (require).
std::vector<Step> steps_of(const Plan& plan, int host);

// What a strategy promises, asserted by the checker: the longest chain of messages any value waits
// for where each host takes its steps in order, how many of these are empty, the largest number of
// chunks one host sends, and receives, and how many all send together. In closed form: no steps are
// made.
struct Cost {
  int rounds = 0;
  int empty_rounds = 0;  // Of `rounds`.
  int sent_chunks_max = 0;
  int received_chunks_max = 0;
  int64_t sent_chunks_sum = 0;
};
Cost cost_of(const Plan& plan);

// The hosts that work with each other: for a ring each and the next one, for a heap each and its
// parent, for an all_to_all all. Empty where there is one host only. Not for reproducible plans.
std::vector<std::pair<int, int>> host_pairs(const Plan& plan);

// ---- The local phase ----

// The ranks of a host in the order in which they are folded, as places in plan.hosts[host]: the
// root first where a reduce's root lives there and the plan is not reproducible, then ascending.
std::vector<int> fold_order(const Plan& plan, int host);

}  // namespace tutti

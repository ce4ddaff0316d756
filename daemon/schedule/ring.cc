// Ring: position p sends to p+1 and receives from p-1 only. Reduce-scatter: the share of position c
// starts at c+1, each position on the way adds its contribution, and the share is complete, and
// finished, at c. All-gather: from c it goes round once more. Every link carries the same load.
//
// COST. With m members, C chunks in all, s(p) those in the share of p:
//   reduce_scatter  m-1 rounds; p sends C - s(p), receives C - s(p-1)
//   all_gather      m-1 rounds; p sends C - s(p+1), receives C - s(p)
//   all_reduce      2(m-1) rounds; p sends and receives the sums: 2(m-1) of m chunks
// The rooted forms of a ring are those of the chain: there is nothing to scatter, and since the
// engine keeps slices in flight a chain fills every link as well.
#include <numeric>

#include "daemon/schedule/strategies.h"

namespace tutti {
namespace {

// One lap: first to leave is the share of `first`, then the shares before it, m-1 in all.
void lap(const Level& level, int self, int first, StepKind arrival, const Shares& shares,
         Steps& out) {
  const int m = size_of(level);
  const int right = level.members[(self + 1) % m], left = level.members[(self + m - 1) % m];
  for (int round = 0; round < m - 1; ++round) {
    const int leaving = (first + m - round) % m;
    for (int chunk : shares[leaving]) out.push_back({StepKind::send, right, chunk});
    for (int chunk : shares[(leaving + m - 1) % m]) out.push_back({arrival, left, chunk});
  }
}

void ring_reduce_scatter_steps(const Level& level, int self, const Shares& shares, Steps& out) {
  const int m = size_of(level);
  lap(level, self, (self + m - 1) % m, StepKind::recv_reduce, shares, out);
  for (int chunk : shares[self]) out.push_back({StepKind::finish, -1, chunk});
}

void ring_all_gather_steps(const Level& level, int self, const Shares& shares, Steps& out) {
  lap(level, self, self, StepKind::recv, shares, out);
}

void ring_all_reduce_steps(const Level& level, int self, const Shares& shares, Steps& out) {
  ring_reduce_scatter_steps(level, self, shares, out);
  ring_all_gather_steps(level, self, shares, out);
}

// For a lap: all shares leave p but the one of p + kept.
void lap_cost(const Level& level, const Sizes& sizes, int kept, Tally& tally) {
  const int m = size_of(level), chunks = std::accumulate(sizes.begin(), sizes.end(), 0);
  for (int& clock : tally.clock) clock += m - 1;
  for (int p = 0; m > 1 && p < m; ++p) {
    tally.sent[p] += chunks - sizes[(p + kept) % m];
    tally.received[p] += chunks - sizes[(p + kept + m - 1) % m];
  }
}

void ring_reduce_scatter_cost(const Level& level, const Sizes& sizes, Tally& tally) {
  lap_cost(level, sizes, 0, tally);
}

void ring_all_gather_cost(const Level& level, const Sizes& sizes, Tally& tally) {
  lap_cost(level, sizes, 1, tally);
}

void ring_all_reduce_cost(const Level& level, const Sizes& sizes, Tally& tally) {
  ring_reduce_scatter_cost(level, sizes, tally);
  ring_all_gather_cost(level, sizes, tally);
}

}  // namespace

Forms ring_forms() {
  Forms forms = tree_forms();
  forms.all_reduce = {ring_all_reduce_steps, ring_all_reduce_cost};
  forms.all_gather = {ring_all_gather_steps, ring_all_gather_cost};
  forms.reduce_scatter = {ring_reduce_scatter_steps, ring_reduce_scatter_cost};
  forms.splits = true;
  return forms;
}

}  // namespace tutti

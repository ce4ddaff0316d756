// Tree(k), and with it Centralized (k = n-1) and the chain (k = 1): a heap over positions. The
// children of position i are k*i+1 .. k*i+k, so position 0 is the root and the depth of position i
// is that of a complete k-ary heap.
//
// COST. With D the depth of the last position, C the chunks in all, S(i) the chunks in the shares
// of the subtree of i, and s(i) those of i itself:
//   up         D rounds; every member but the root sends C to its parent
//   gather     D rounds; every member but the root sends S(i) to its parent
//   down       D rounds; i sends C - S(child) to each of its children
//   scatter    D rounds; i sends S(child) to each of its children, S(i) - s(i) in all
//   notify     D rounds up, or D down, of empty messages
// The forms are two of these each, 2 D rounds: all_reduce and barrier up and down, all_gather
// gather and down, reduce_scatter up and scatter; reduce up and gather gather, then notify down
// ("it is complete"); broadcast and scatter notify up ("I am ready"), then down or scatter.
#include <algorithm>
#include <numeric>

#include "daemon/schedule/strategies.h"

namespace tutti {
namespace {

constexpr int kOutside = -1;

int parent_of(const Level& level, int position) { return (position - 1) / level.arity; }

std::vector<int> children_of(const Level& level, int position) {
  std::vector<int> children;
  for (int i = 1; i <= level.arity && level.arity * position + i < size_of(level); ++i)
    children.push_back(level.arity * position + i);
  return children;
}

// By position: the child of `self` below which (or at which) it sits, `self` for itself, kOutside
// for those not below `self`.
std::vector<int> branches_of(const Level& level, int self) {
  std::vector<int> branch(level.members.size(), kOutside);
  branch[self] = self;
  for (int i = self + 1; i < size_of(level); ++i) {
    const int parent = parent_of(level, i);
    branch[i] = parent == self ? i : branch[parent];
  }
  return branch;
}

void up_steps(const Level& level, int self, const Shares& shares, Steps& out) {
  const std::vector<int> children = children_of(level, self);
  for (const auto& share : shares)
    for (int chunk : share) {
      for (int child : children)
        out.push_back({StepKind::recv_reduce, level.members[child], chunk});
      if (self > 0) out.push_back({StepKind::send, level.members[parent_of(level, self)], chunk});
    }
}

void gather_steps(const Level& level, int self, const Shares& shares, Steps& out) {
  const std::vector<int> branch = branches_of(level, self);
  for (int owner = 0; owner < size_of(level); ++owner) {
    const int from = branch[owner];
    if (from == kOutside) continue;
    for (int chunk : shares[owner]) {
      if (from != self) out.push_back({StepKind::recv, level.members[from], chunk});
      if (self > 0) out.push_back({StepKind::send, level.members[parent_of(level, self)], chunk});
    }
  }
}

void down_steps(const Level& level, int self, const Shares& shares, Steps& out) {
  const std::vector<int> children = children_of(level, self);
  const std::vector<int> branch = branches_of(level, self);
  for (int owner = 0; owner < size_of(level); ++owner)
    for (int chunk : shares[owner]) {
      if (branch[owner] == kOutside)
        out.push_back({StepKind::recv, level.members[parent_of(level, self)], chunk});
      for (int child : children)
        if (branch[owner] != child) out.push_back({StepKind::send, level.members[child], chunk});
    }
}

void scatter_steps(const Level& level, int self, const Shares& shares, Steps& out) {
  const std::vector<int> branch = branches_of(level, self);
  for (int owner = 0; owner < size_of(level); ++owner) {
    const int to = branch[owner];
    if (to == kOutside) continue;
    for (int chunk : shares[owner]) {
      if (self > 0) out.push_back({StepKind::recv, level.members[parent_of(level, self)], chunk});
      if (to != self) out.push_back({StepKind::send, level.members[to], chunk});
    }
  }
}

void finish_at_root(int self, const Shares& shares, Steps& out) {
  if (self > 0) return;
  for (const auto& share : shares)
    for (int chunk : share) out.push_back({StepKind::finish, -1, chunk});
}

void notify_up_steps(const Level& level, int self, Steps& out) {
  for (int child : children_of(level, self))
    out.push_back({StepKind::await, level.members[child], 0});
  if (self > 0) out.push_back({StepKind::notify, level.members[parent_of(level, self)], 0});
}

void notify_down_steps(const Level& level, int self, Steps& out) {
  if (self > 0) out.push_back({StepKind::await, level.members[parent_of(level, self)], 0});
  for (int child : children_of(level, self))
    out.push_back({StepKind::notify, level.members[child], 0});
}

void reduce_steps(const Level& level, int self, const Shares& shares, Steps& out) {
  up_steps(level, self, shares, out);
  finish_at_root(self, shares, out);
  notify_down_steps(level, self, out);
}

void broadcast_steps(const Level& level, int self, const Shares& shares, Steps& out) {
  notify_up_steps(level, self, out);
  down_steps(level, self, shares, out);
}

void all_reduce_steps(const Level& level, int self, const Shares& shares, Steps& out) {
  up_steps(level, self, shares, out);
  finish_at_root(self, shares, out);
  down_steps(level, self, shares, out);
}

void all_gather_steps(const Level& level, int self, const Shares& shares, Steps& out) {
  gather_steps(level, self, shares, out);
  down_steps(level, self, shares, out);
}

void reduce_scatter_steps(const Level& level, int self, const Shares& shares, Steps& out) {
  up_steps(level, self, shares, out);
  finish_at_root(self, shares, out);
  scatter_steps(level, self, shares, out);
}

void rooted_gather_steps(const Level& level, int self, const Shares& shares, Steps& out) {
  gather_steps(level, self, shares, out);
  notify_down_steps(level, self, out);
}

void rooted_scatter_steps(const Level& level, int self, const Shares& shares, Steps& out) {
  notify_up_steps(level, self, out);
  scatter_steps(level, self, shares, out);
}

std::vector<int> depths_of(const Level& level) {
  std::vector<int> depth(level.members.size(), 0);
  for (int i = 1; i < size_of(level); ++i) depth[i] = depth[parent_of(level, i)] + 1;
  return depth;
}

// S(i) of the head of this file.
std::vector<int> weights_of(const Level& level, const Sizes& sizes) {
  std::vector<int> weight = sizes;
  for (int i = size_of(level) - 1; i > 0; --i) weight[parent_of(level, i)] += weight[i];
  return weight;
}

int depth_of(const Level& level) { return depths_of(level).back(); }

void clock_up(const Level& level, Tally& tally) {
  tally.clock[0] = std::max(tally.clock[0], depth_of(level));
}

void clock_down(const Level& level, Tally& tally) {
  const std::vector<int> depth = depths_of(level);
  for (int i = 1; i < size_of(level); ++i) tally.clock[i] = tally.clock[0] + depth[i];
}

void pass(int from, int to, int chunks, Tally& tally) {
  tally.sent[from] += chunks;
  tally.received[to] += chunks;
}

void up_cost(const Level& level, const Sizes& sizes, Tally& tally) {
  clock_up(level, tally);
  const int chunks = std::accumulate(sizes.begin(), sizes.end(), 0);
  for (int i = 1; i < size_of(level); ++i) pass(i, parent_of(level, i), chunks, tally);
}

void gather_cost(const Level& level, const Sizes& sizes, Tally& tally) {
  clock_up(level, tally);
  const std::vector<int> weight = weights_of(level, sizes);
  for (int i = 1; i < size_of(level); ++i) pass(i, parent_of(level, i), weight[i], tally);
}

void down_cost(const Level& level, const Sizes& sizes, Tally& tally) {
  clock_down(level, tally);
  const std::vector<int> weight = weights_of(level, sizes);
  for (int i = 1; i < size_of(level); ++i)
    pass(parent_of(level, i), i, weight[0] - weight[i], tally);
}

void scatter_cost(const Level& level, const Sizes& sizes, Tally& tally) {
  clock_down(level, tally);
  const std::vector<int> weight = weights_of(level, sizes);
  for (int i = 1; i < size_of(level); ++i) pass(parent_of(level, i), i, weight[i], tally);
}

void reduce_cost(const Level& level, const Sizes& sizes, Tally& tally) {
  up_cost(level, sizes, tally);
  clock_down(level, tally);
  tally.empty_rounds = depth_of(level);
}

void broadcast_cost(const Level& level, const Sizes& sizes, Tally& tally) {
  clock_up(level, tally);
  down_cost(level, sizes, tally);
  tally.empty_rounds = depth_of(level);
}

void all_reduce_cost(const Level& level, const Sizes& sizes, Tally& tally) {
  up_cost(level, sizes, tally);
  down_cost(level, sizes, tally);
}

void all_gather_cost(const Level& level, const Sizes& sizes, Tally& tally) {
  gather_cost(level, sizes, tally);
  down_cost(level, sizes, tally);
}

void reduce_scatter_cost(const Level& level, const Sizes& sizes, Tally& tally) {
  up_cost(level, sizes, tally);
  scatter_cost(level, sizes, tally);
}

void rooted_gather_cost(const Level& level, const Sizes& sizes, Tally& tally) {
  gather_cost(level, sizes, tally);
  clock_down(level, tally);
  tally.empty_rounds = depth_of(level);
}

void rooted_scatter_cost(const Level& level, const Sizes& sizes, Tally& tally) {
  clock_up(level, tally);
  scatter_cost(level, sizes, tally);
  tally.empty_rounds = depth_of(level);
}

}  // namespace

Forms tree_forms() {
  return {.reduce = {reduce_steps, reduce_cost},
          .broadcast = {broadcast_steps, broadcast_cost},
          .all_reduce = {all_reduce_steps, all_reduce_cost},
          .all_gather = {all_gather_steps, all_gather_cost},
          .reduce_scatter = {reduce_scatter_steps, reduce_scatter_cost},
          .barrier = {all_reduce_steps, all_reduce_cost},
          .gather = {rooted_gather_steps, rooted_gather_cost},
          .scatter = {rooted_scatter_steps, rooted_scatter_cost},
          .all_to_all = exchange_form()};
}

}  // namespace tutti

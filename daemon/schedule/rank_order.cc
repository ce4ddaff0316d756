// Reproducible plans: every movement gives ((x0 op x1) op x2) ..., in the order of the ranks.
//
//   raw    the contribution of every rank goes, as it is, to the host that owns the chunk, which
//          combines them all; then the result goes from there to every host that wants it.
//          Centralized and Ring, where every host has one rank: the bytes are a ring's. And raw
//          plans, where a host sends as many chunks for each of its ranks
//   gather an all_reduce of a raw plan: the contribution of every rank goes to all hosts, and each
//          combines them all. Nothing comes back, so a host finishes while others may still take
//          what it sent: it sent copies. In a raw plan those of a *run* of ranks, which follow each
//          other, travel as one message
//   chain  a value goes from host to host in the order of the ranks, and each adds its own; then
//          the result goes back, under Centralized to all at once, else the same way. Where ranks
//          of one host do not follow each other, the value comes by once for each run. Everywhere
//          else: with several ranks a host raw contributions are several times the bytes
//
// The owner of a chunk: of a block, its rank's host; for a reduce, the root's. For an all_reduce,
// Ring cuts the tensor into a chunk for each host, in the order of their lowest ranks, and
// Centralized gives all to the first of these.
//
// COST. With n hosts, W ranks, k(p) of them on p, C chunks, o(p) of them owned by p, and m runs:
//   raw    1 round: p sends k(p) (C - o(p)), and receives o(p) (W - k(p)). Then all_reduce: 1
//          round; p sends o(p) (n-1) and receives C - o(p). reduce: 1 empty round
//   gather 1 round: p sends k(p) (n-1) and receives W - k(p)
//   chain  m-1 rounds: C chunks from run to run. Then from the host of the last run, all_reduce:
//          n-1 rounds, a chunk from host to host, or 1 round to all. reduce_scatter: 1 round, to
//          each other host its blocks. reduce: as all_reduce, but empty, and a chunk to the root's
//          host in the first round, unless that is the last run's
#include <algorithm>
#include <numeric>

#include "daemon/base/blocks.h"
#include "daemon/schedule/strategies.h"

namespace tutti::rank_order {
namespace {

// Ranks of a host that follow each other: its places [first, first + ranks).
struct Run {
  int host;
  int first;
  int ranks;
};

int hosts_of(const Plan& plan) { return static_cast<int>(plan.hosts.size()); }
int ranks_on(const Plan& plan, int host) { return static_cast<int>(plan.hosts[host].size()); }

std::vector<Run> runs_of(const Plan& plan) {
  std::vector<int> next(plan.hosts.size(), 0);  // By host: places that are in a run.
  std::vector<int> home(static_cast<size_t>(world_size(plan)));
  for (int host = 0; host < hosts_of(plan); ++host)
    for (const int rank : plan.hosts[host]) home[rank] = host;
  std::vector<Run> runs;
  for (const int host : home) {
    if (runs.empty() || runs.back().host != host) runs.push_back({host, next[host], 0});
    ++runs.back().ranks;
    ++next[host];
  }
  return runs;
}

std::vector<Run> own_runs(const Plan& plan, int host) {
  std::vector<Run> runs = runs_of(plan);
  std::erase_if(runs, [&](const Run& run) { return run.host != host; });
  return runs;
}

bool is_centralized(const Plan& plan) {
  return plan.strategies.global.kind == StrategyKind::centralized;
}

bool gathers(const Plan& plan) { return plan.raw && plan.collective == Collective::all_reduce; }

bool goes_to_owners(const Plan& plan) {
  return plan.raw ||
         (has_lone_ranks(plan.hosts) && plan.strategies.global.kind != StrategyKind::tree);
}

std::vector<int> by_lowest_rank(const Plan& plan) {
  std::vector<int> hosts(plan.hosts.size());
  std::iota(hosts.begin(), hosts.end(), 0);
  std::ranges::sort(hosts, {}, [&](int host) { return plan.hosts[host].front(); });
  return hosts;
}

// By host: the chunks that it owns, ascending.
std::vector<std::vector<int>> owned_chunks(const Plan& plan) {
  if (has_blocks(plan.collective)) return plan.hosts;
  std::vector<std::vector<int>> owned(plan.hosts.size());
  if (plan.collective == Collective::reduce) {
    owned[host_of(plan, plan.root)].push_back(0);
    return owned;
  }
  const std::vector<int> order = by_lowest_rank(plan);
  for (int chunk = 0; chunk < chunk_count(plan); ++chunk) owned[order[chunk]].push_back(chunk);
  return owned;
}

// Combines all contributions to a chunk that this host owns.
void combine_raw(const Plan& plan, int self, int chunk, Steps& out) {
  bool is_first = true;
  for (const Run& run : runs_of(plan)) {
    if (run.host == self)
      out.push_back({is_first ? StepKind::take : StepKind::add, -1, chunk, run.first, run.ranks});
    else
      out.push_back({is_first ? StepKind::recv : StepKind::recv_reduce, run.host, chunk, 0,
                     plan.raw ? run.ranks : 0});
    is_first = false;
  }
  out.push_back({StepKind::finish, -1, chunk});
}

// A host begins with the one after it, so that no host is sent to by all at once.
template <class Each>
void for_others(const Plan& plan, int self, Each each) {
  for (int distance = 1; distance < hosts_of(plan); ++distance)
    each((self + distance) % hosts_of(plan));
}

void distribute(const Plan& plan, int self, const std::vector<std::vector<int>>& owned,
                Steps& out) {
  const bool copies = plan.collective == Collective::all_reduce;
  const auto result = [&](StepKind kind, StepKind empty, int peer, int chunk) {
    out.push_back({copies ? kind : empty, peer, chunk});
  };
  if (plan.collective == Collective::reduce_scatter) return;
  for_others(plan, self, [&](int to) {
    for (const int chunk : owned[self]) result(StepKind::send, StepKind::notify, to, chunk);
  });
  for_others(plan, self, [&](int from) {
    for (const int chunk : owned[from]) result(StepKind::recv, StepKind::await, from, chunk);
  });
}

Steps raw_steps(const Plan& plan, int self) {
  Steps out;
  const std::vector<std::vector<int>> owned = owned_chunks(plan);
  const std::vector<Run> runs = own_runs(plan, self);
  const StepKind own = plan.raw ? StepKind::pack : StepKind::take;
  for_others(plan, self, [&](int to) {
    for (const int chunk : owned[to])
      for (const Run& run : runs) {
        out.push_back({own, -1, chunk, run.first, run.ranks});
        out.push_back({StepKind::send, to, chunk, 0, plan.raw ? run.ranks : 0});
      }
  });
  for (const int chunk : owned[self]) combine_raw(plan, self, chunk, out);
  distribute(plan, self, owned, out);
  return out;
}

Steps gather_steps(const Plan& plan, int self) {
  Steps out;
  for (const Run& run : own_runs(plan, self)) {
    out.push_back({StepKind::pack, -1, 0, run.first, run.ranks});
    for_others(plan, self, [&](int to) { out.push_back({StepKind::send, to, 0, 0, run.ranks}); });
  }
  combine_raw(plan, self, 0, out);
  return out;
}

// The hosts in the order in which a result goes back: that of the last run first.
std::vector<int> way_back(const Plan& plan, int last) {
  std::vector<int> hosts = by_lowest_rank(plan);
  std::ranges::reverse(hosts);
  const auto at = std::ranges::find(hosts, last);
  std::rotate(hosts.begin(), at, at + 1);
  return hosts;
}

void step_back(const Plan& plan, int self, int last, StepKind arrival, StepKind leaving,
               Steps& out) {
  const std::vector<int> hosts = way_back(plan, last);
  const auto at = std::ranges::find(hosts, self);
  const bool direct = is_centralized(plan);
  if (self != last) out.push_back({arrival, direct ? last : *(at - 1), 0});
  if (self != last && direct) return;
  const auto end = direct || at + 1 == hosts.end() ? hosts.end() : at + 2;
  for (auto to = at + 1; to != end; ++to) out.push_back({leaving, *to, 0});
}

void send_blocks(const Plan& plan, int self, int last, Steps& out) {
  if (self != last) {
    for (const int chunk : plan.hosts[self]) out.push_back({StepKind::recv, last, chunk});
    return;
  }
  for_others(plan, self, [&](int to) {
    for (const int chunk : plan.hosts[to]) out.push_back({StepKind::send, to, chunk});
  });
}

void step_chain_back(const Plan& plan, int self, int last, Steps& out) {
  if (plan.collective == Collective::reduce_scatter) return send_blocks(plan, self, last, out);
  if (plan.collective == Collective::all_reduce)
    return step_back(plan, self, last, StepKind::recv, StepKind::send, out);
  const int root = host_of(plan, plan.root);
  if (root != last && self == last) out.push_back({StepKind::send, root, 0});
  if (root != last && self == root) out.push_back({StepKind::recv, last, 0});
  step_back(plan, self, last, StepKind::await, StepKind::notify, out);
}

Steps chain_steps(const Plan& plan, int self) {
  Steps out;
  const std::vector<Run> runs = runs_of(plan);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].host != self) continue;
    for (int chunk = 0; chunk < chunk_count(plan); ++chunk) {
      if (i != 0) out.push_back({StepKind::recv, runs[i - 1].host, chunk});
      const StepKind own = i == 0 ? StepKind::take : StepKind::add;
      out.push_back({own, -1, chunk, runs[i].first, runs[i].ranks});
      if (i + 1 != runs.size()) out.push_back({StepKind::send, runs[i + 1].host, chunk});
      if (i + 1 == runs.size()) out.push_back({StepKind::finish, -1, chunk});
    }
  }
  step_chain_back(plan, self, runs.back().host, out);
  return out;
}

void pass(int from, int to, int chunks, Tally& tally) {
  tally.sent[from] += chunks;
  tally.received[to] += chunks;
}

void raw_cost(const Plan& plan, Tally& tally) {
  const std::vector<std::vector<int>> owned = owned_chunks(plan);
  const int chunks = chunk_count(plan), others = hosts_of(plan) - 1, ranks = world_size(plan);
  const bool copies = plan.collective == Collective::all_reduce;
  for (int host = 0; host < hosts_of(plan); ++host) {
    const int mine = static_cast<int>(owned[host].size());
    const int here = ranks_on(plan, host);
    tally.sent[host] = here * (chunks - mine) + (copies ? mine * others : 0);
    tally.received[host] = mine * (ranks - here) + (copies ? chunks - mine : 0);
    tally.clock[host] = plan.collective == Collective::reduce_scatter ? 1 : 2;
  }
  tally.empty_rounds = plan.collective == Collective::reduce ? 1 : 0;
}

void gather_cost(const Plan& plan, Tally& tally) {
  const int ranks = world_size(plan);
  for (int host = 0; host < hosts_of(plan); ++host) {
    tally.sent[host] = ranks_on(plan, host) * (hosts_of(plan) - 1);
    tally.received[host] = ranks - ranks_on(plan, host);
    tally.clock[host] = 1;
  }
}

// What follows the last run, and the rounds of it.
int chain_back_cost(const Plan& plan, int last, Tally& tally) {
  const std::vector<int> back = way_back(plan, last);
  const int rounds = is_centralized(plan) ? 1 : hosts_of(plan) - 1;
  if (plan.collective == Collective::reduce_scatter) {
    for (const int host : back)
      if (host != last) pass(last, host, static_cast<int>(plan.hosts[host].size()), tally);
    return 1;
  }
  if (plan.collective == Collective::all_reduce) {
    for (size_t i = 1; i < back.size(); ++i)
      pass(is_centralized(plan) ? last : back[i - 1], back[i], 1, tally);
    return rounds;
  }
  const int root = host_of(plan, plan.root);
  if (root != last) pass(last, root, 1, tally);
  tally.empty_rounds = root == last ? rounds : rounds - 1;
  return rounds;
}

void chain_cost(const Plan& plan, Tally& tally) {
  const std::vector<Run> runs = runs_of(plan);
  for (size_t i = 1; i < runs.size(); ++i)
    pass(runs[i - 1].host, runs[i].host, chunk_count(plan), tally);
  const int back = chain_back_cost(plan, runs.back().host, tally);
  std::ranges::fill(tally.clock, static_cast<int>(runs.size()) - 1 + back);
}

}  // namespace

bool splits(const Plan& plan) {
  return plan.strategies.global.kind == StrategyKind::ring && has_lone_ranks(plan.hosts);
}

Steps steps_of(const Plan& plan, int host) {
  if (gathers(plan)) return gather_steps(plan, host);
  return goes_to_owners(plan) ? raw_steps(plan, host) : chain_steps(plan, host);
}

void cost(const Plan& plan, Tally& tally) {
  if (gathers(plan)) return gather_cost(plan, tally);
  return goes_to_owners(plan) ? raw_cost(plan, tally) : chain_cost(plan, tally);
}

}  // namespace tutti::rank_order

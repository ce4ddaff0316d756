// Plans, and the steps and costs of a plan under its strategy.
#include "daemon/schedule/schedule.h"

#include <algorithm>
#include <numeric>

#include "daemon/base/blocks.h"
#include "daemon/schedule/strategies.h"

namespace tutti {
namespace {

bool is_usable(const Strategy& strategy) {
  return strategy.kind != StrategyKind::automatic &&
         (strategy.kind != StrategyKind::tree || strategy.arity >= 1);
}

bool is_well_formed(const Plan& plan) {
  const int n = world_size(plan);
  if (n < 1 || !is_usable(plan.strategies.local) || !is_usable(plan.strategies.global))
    return false;
  std::vector<bool> seen(n, false);
  for (const auto& ranks : plan.hosts) {
    if (ranks.empty() || !std::is_sorted(ranks.begin(), ranks.end())) return false;
    for (int rank : ranks) {
      if (rank < 0 || rank >= n || seen[rank]) return false;
      seen[rank] = true;
    }
  }
  if (plan.reproducible && !reduces(plan.collective)) return false;
  const bool can_be_raw =
      plan.reproducible && plan.strategies.global.kind == StrategyKind::centralized;
  if (plan.raw && !can_be_raw) return false;
  return !has_root(plan.collective) || (plan.root >= 0 && plan.root < n);
}

int lowest_rank(const Plan& plan, int host) { return plan.hosts[host].front(); }

Level level_among_hosts(const Plan& plan) {
  std::vector<int> members(plan.hosts.size());
  std::iota(members.begin(), members.end(), 0);
  const int root = has_root(plan.collective) ? host_of(plan, plan.root) : -1;
  std::sort(members.begin(), members.end(), [&](int a, int b) {
    if ((a == root) != (b == root)) return a == root;
    return lowest_rank(plan, a) < lowest_rank(plan, b);
  });
  return level_of(plan.strategies.global, std::move(members));
}

Form Forms::*form_of(Collective collective) {
  switch (collective) {
    case Collective::reduce:
      return &Forms::reduce;
    case Collective::broadcast:
      return &Forms::broadcast;
    case Collective::all_gather:
      return &Forms::all_gather;
    case Collective::reduce_scatter:
      return &Forms::reduce_scatter;
    case Collective::barrier:
      return &Forms::barrier;
    case Collective::gather:
      return &Forms::gather;
    case Collective::scatter:
      return &Forms::scatter;
    case Collective::all_to_all:
      return &Forms::all_to_all;
    case Collective::all_reduce:
      break;
  }
  return &Forms::all_reduce;
}

// A host's ranks, which are its blocks but in an all_to_all, or the chunk that a splitting strategy
// gives each host.
Shares shares_of(const Plan& plan, const Level& level) {
  Shares shares(level.members.size());
  if (has_blocks(plan.collective))
    for (size_t i = 0; i < shares.size(); ++i) shares[i] = plan.hosts[level.members[i]];
  else
    for (int chunk = 0; chunk < chunk_count(plan); ++chunk) shares[chunk].push_back(chunk);
  return shares;
}

// The position that a member of a level works with: the next one of a ring, the parent in a heap
// (the root: itself).
int neighbour(const Level& level, int position) {
  const int members = static_cast<int>(level.members.size());
  if (level.forms.splits) return (position + 1) % members;
  return position == 0 ? 0 : (position - 1) / level.arity;
}

Blocks blocks_of(const Plan& plan) {
  return {plan.collective, static_cast<uint32_t>(plan.root),
          static_cast<uint32_t>(world_size(plan))};
}

void cost_by_form(const Plan& plan, Tally& tally) {
  const Level level = level_among_hosts(plan);
  Sizes sizes;
  for (const auto& share : shares_of(plan, level)) sizes.push_back(static_cast<int>(share.size()));
  (level.forms.*form_of(plan.collective)).cost(level, sizes, tally);
}

int most(const std::vector<int>& values) { return *std::max_element(values.begin(), values.end()); }

}  // namespace

int world_size(const Plan& plan) {
  return std::accumulate(plan.hosts.begin(), plan.hosts.end(), 0, [](int sum, const auto& ranks) {
    return sum + static_cast<int>(ranks.size());
  });
}

bool has_lone_ranks(const std::vector<std::vector<int>>& hosts) {
  return std::ranges::all_of(hosts, [](const auto& ranks) { return ranks.size() == 1; });
}

int host_of(const Plan& plan, int rank) {
  const auto lives_there = [rank](const std::vector<int>& ranks) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  };
  const auto host = std::find_if(plan.hosts.begin(), plan.hosts.end(), lives_there);
  require(host != plan.hosts.end(), "a rank of the plan");
  return static_cast<int>(host - plan.hosts.begin());
}

int chunk_count(const Plan& plan) {
  if (has_blocks(plan.collective)) return static_cast<int>(blocks_of(plan).count());
  if (plan.collective != Collective::all_reduce) return 1;
  const bool splits =
      plan.reproducible ? rank_order::splits(plan) : forms_of(plan.strategies.global.kind).splits;
  return splits ? static_cast<int>(plan.hosts.size()) : 1;
}

bool contributes(const Plan& plan, int rank, int chunk) {
  if (has_blocks(plan.collective))
    return blocks_of(plan)
        .senders(static_cast<uint32_t>(chunk))
        .contains(static_cast<uint32_t>(rank));
  return plan.collective != Collective::broadcast || rank == plan.root;
}

bool wants(const Plan& plan, int rank, int chunk) {
  if (has_blocks(plan.collective))
    return blocks_of(plan)
        .receivers(static_cast<uint32_t>(chunk))
        .contains(static_cast<uint32_t>(rank));
  return plan.collective != Collective::reduce || rank == plan.root;
}

bool host_contributes(const Plan& plan, int host, int chunk) {
  const std::vector<int>& ranks = plan.hosts[host];
  return std::any_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return contributes(plan, rank, chunk); });
}

bool host_wants(const Plan& plan, int host, int chunk) {
  const std::vector<int>& ranks = plan.hosts[host];
  return std::any_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return wants(plan, rank, chunk); });
}

std::vector<Step> steps_of(const Plan& plan, int host) {
  require(is_well_formed(plan), "a plan names every rank once, usable strategies and a root");
  require(host >= 0 && host < static_cast<int>(plan.hosts.size()), "a host of the plan");
  std::vector<Step> steps;
  if (plan.hosts.size() == 1) return steps;
  if (plan.reproducible) return rank_order::steps_of(plan, host);
  const Level level = level_among_hosts(plan);
  const auto self = std::find(level.members.begin(), level.members.end(), host);
  const Form& form = level.forms.*form_of(plan.collective);
  form.steps(level, static_cast<int>(self - level.members.begin()), shares_of(plan, level), steps);
  return steps;
}

Cost cost_of(const Plan& plan) {
  require(is_well_formed(plan), "a plan names every rank once, usable strategies and a root");
  if (plan.hosts.size() == 1) return {};
  Tally tally(plan.hosts.size());
  if (plan.reproducible)
    rank_order::cost(plan, tally);
  else
    cost_by_form(plan, tally);
  return {most(tally.clock), tally.empty_rounds, most(tally.sent), most(tally.received),
          std::accumulate(tally.sent.begin(), tally.sent.end(), int64_t{0})};
}

std::vector<std::pair<int, int>> host_pairs(const Plan& plan) {
  require(!plan.reproducible, "a plan whose pairs follow from its strategy");
  const Level level = level_among_hosts(plan);
  std::vector<std::pair<int, int>> pairs;
  if (plan.collective == Collective::all_to_all) {
    for (int one = 0; one < static_cast<int>(plan.hosts.size()); ++one)
      for (int other = 0; other < one; ++other) pairs.emplace_back(one, other);
    return pairs;
  }
  for (int position = 0; position < static_cast<int>(level.members.size()); ++position) {
    const int next = neighbour(level, position);
    if (next != position) pairs.emplace_back(level.members[position], level.members[next]);
  }
  return pairs;
}

std::vector<int> fold_order(const Plan& plan, int host) {
  const std::vector<int>& ranks = plan.hosts[host];
  std::vector<int> order(ranks.size());
  std::iota(order.begin(), order.end(), 0);
  const auto root = std::find(ranks.begin(), ranks.end(), plan.root);
  const bool by_rank = plan.collective != Collective::reduce || plan.reproducible;
  if (by_rank || root == ranks.end()) return order;
  const auto first = order.begin() + (root - ranks.begin());
  std::rotate(order.begin(), first, first + 1);
  return order;
}

}  // namespace tutti

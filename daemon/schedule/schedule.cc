// Plans, and the composition of two levels: the hosts' own phase, the phase among leaders, the
// hosts' own phase again.
#include "daemon/schedule/schedule.h"

#include <algorithm>
#include <numeric>

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
  return !has_root(plan.collective) || (plan.root >= 0 && plan.root < n);
}

bool has_blocks(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::reduce_scatter;
}

const Strategy& top_strategy(const Plan& plan) {
  return plan.hosts.size() == 1 ? plan.strategies.local : plan.strategies.global;
}

// The plan as a top level of groups. Several hosts: one group each. One host: its ranks are the
// top level themselves, each a group of its own, so a single level needs no special case.
struct Outline {
  std::vector<std::vector<int>> groups;  // By position on the top level; each leader first.
  std::vector<int> leaders;
};

template <class Value>
void move_to_front(std::vector<Value>& values, typename std::vector<Value>::iterator it) {
  std::rotate(values.begin(), it, it + 1);
}

Outline outline_of(const Plan& plan) {
  Outline outline;
  for (size_t host = 0; host < plan.hosts.size(); ++host) {
    std::vector<int> group = plan.hosts[host];
    move_to_front(group,
                  std::find(group.begin(), group.end(), leader_of(plan, static_cast<int>(host))));
    if (plan.hosts.size() > 1)
      outline.groups.push_back(std::move(group));
    else
      for (int rank : group) outline.groups.push_back({rank});
  }
  auto& groups = outline.groups;
  std::sort(groups.begin(), groups.end());
  if (has_root(plan.collective))
    move_to_front(groups, std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
                    return group.front() == plan.root;
                  }));
  for (const auto& group : groups) outline.leaders.push_back(group.front());
  return outline;
}

// The whole of every collective: a phase inside the groups, one among leaders, one inside again.
struct Phases {
  Form Forms::*before = nullptr;
  Form Forms::*across = nullptr;
  Form Forms::*after = nullptr;
};

Phases phases_of(Collective collective) {
  switch (collective) {
    case Collective::reduce:
      return {&Forms::reduce, &Forms::reduce, nullptr};
    case Collective::broadcast:
      return {nullptr, &Forms::broadcast, &Forms::broadcast};
    case Collective::all_gather:
      return {&Forms::gather, &Forms::all_gather, &Forms::broadcast};
    case Collective::reduce_scatter:
      return {&Forms::reduce, &Forms::reduce_scatter, &Forms::scatter};
    case Collective::barrier:
      return {&Forms::reduce, &Forms::barrier, &Forms::broadcast};
    case Collective::all_reduce:
      break;
  }
  return {&Forms::reduce, &Forms::all_reduce, &Forms::broadcast};
}

// Among leaders: a group's blocks, or the chunk that a splitting strategy gives each leader.
Shares top_shares(const Plan& plan, const Outline& outline) {
  if (has_blocks(plan.collective)) return outline.groups;
  Shares shares(outline.groups.size());
  for (int chunk = 0; chunk < chunk_count(plan); ++chunk) shares[chunk].push_back(chunk);
  return shares;
}

// Inside a group: a rank's own block, and with the leader all that is not the others'.
Shares group_shares(const Plan& plan, const std::vector<int>& group) {
  const int chunks = chunk_count(plan);
  Shares shares(group.size());
  std::vector<bool> theirs(chunks, false);
  for (size_t i = 1; i < group.size() && has_blocks(plan.collective); ++i) {
    shares[i].push_back(group[i]);
    theirs[group[i]] = true;
  }
  shares[0].reserve(chunks);
  for (int chunk = 0; chunk < chunks; ++chunk)
    if (!theirs[chunk]) shares[0].push_back(chunk);
  return shares;
}

// How many chunks those are, without listing them: top_shares() and group_shares() counted.
Sizes top_sizes(const Plan& plan, const Outline& outline, int chunks) {
  Sizes sizes(outline.groups.size());
  for (size_t i = 0; i < sizes.size(); ++i)
    sizes[i] = has_blocks(plan.collective) ? static_cast<int>(outline.groups[i].size())
                                           : static_cast<int>(i) < chunks;
  return sizes;
}

Sizes group_sizes(const Plan& plan, const std::vector<int>& group, int chunks) {
  Sizes sizes(group.size(), has_blocks(plan.collective) ? 1 : 0);
  sizes[0] = has_blocks(plan.collective) ? chunks - static_cast<int>(group.size()) + 1 : chunks;
  return sizes;
}

int position_in(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

const std::vector<int>& group_of(const Outline& outline, int rank) {
  return *std::find_if(outline.groups.begin(), outline.groups.end(), [&](const auto& group) {
    return std::find(group.begin(), group.end(), rank) != group.end();
  });
}

// The cost inside one group, on its way through a plan.
struct GroupCost {
  Level level;
  Sizes sizes;
  Tally tally;
  void add(Form Forms::*form) {
    if (form) (level.forms.*form).cost(level, sizes, tally);
  }
};

std::vector<GroupCost> group_costs(const Plan& plan, const Outline& outline, int chunks) {
  std::vector<GroupCost> costs;
  costs.reserve(outline.groups.size());
  for (const auto& group : outline.groups)
    costs.push_back({level_of(plan.strategies.local, group), group_sizes(plan, group, chunks),
                     Tally(group.size())});
  return costs;
}

// Whom a member of a level works with: the next one of a ring, the parent in a heap (the root:
// itself).
int neighbour(const Level& level, int position) {
  const int members = static_cast<int>(level.ranks.size());
  if (level.forms.splits) return (position + 1) % members;
  return position == 0 ? 0 : (position - 1) / level.arity;
}

int most(const std::vector<int>& values) { return *std::max_element(values.begin(), values.end()); }

}  // namespace

int world_size(const Plan& plan) {
  return std::accumulate(plan.hosts.begin(), plan.hosts.end(), 0, [](int sum, const auto& ranks) {
    return sum + static_cast<int>(ranks.size());
  });
}

int leader_of(const Plan& plan, int host) {
  const auto& ranks = plan.hosts[host];
  const bool leads =
      has_root(plan.collective) && std::find(ranks.begin(), ranks.end(), plan.root) != ranks.end();
  return leads ? plan.root : ranks.front();
}

int chunk_count(const Plan& plan) {
  if (has_blocks(plan.collective)) return world_size(plan);
  if (plan.collective != Collective::all_reduce) return 1;
  const size_t members = plan.hosts.size() == 1 ? plan.hosts[0].size() : plan.hosts.size();
  return forms_of(top_strategy(plan).kind).splits ? static_cast<int>(members) : 1;
}

bool contributes(const Plan& plan, int rank, int chunk) {
  if (plan.collective == Collective::broadcast) return rank == plan.root;
  return plan.collective != Collective::all_gather || rank == chunk;
}

bool wants(const Plan& plan, int rank, int chunk) {
  if (plan.collective == Collective::reduce) return rank == plan.root;
  return plan.collective != Collective::reduce_scatter || rank == chunk;
}

std::vector<Step> steps_of(const Plan& plan, int rank) {
  require(is_well_formed(plan), "a plan names every rank once, usable strategies and a root");
  require(rank >= 0 && rank < world_size(plan), "a rank of the plan");
  const Outline outline = outline_of(plan);
  const Phases phases = phases_of(plan.collective);
  const Level inner = level_of(plan.strategies.local, group_of(outline, rank));
  const Shares shares = group_shares(plan, inner.ranks);
  const int position = position_in(inner.ranks, rank);
  std::vector<Step> steps;
  if (phases.before) (inner.forms.*phases.before).steps(inner, position, shares, steps);
  if (position == 0) {
    const Level top = level_of(top_strategy(plan), outline.leaders);
    (top.forms.*phases.across)
        .steps(top, position_in(top.ranks, rank), top_shares(plan, outline), steps);
  }
  if (plan.collective == Collective::reduce && rank == plan.root)
    steps.push_back({StepKind::finish, -1, 0});
  if (phases.after) (inner.forms.*phases.after).steps(inner, position, shares, steps);
  return steps;
}

Cost cost_of(const Plan& plan) {
  require(is_well_formed(plan), "a plan names every rank once, usable strategies and a root");
  const Outline outline = outline_of(plan);
  const Phases phases = phases_of(plan.collective);
  const int chunks = chunk_count(plan);
  std::vector<GroupCost> groups = group_costs(plan, outline, chunks);
  const Level top = level_of(top_strategy(plan), outline.leaders);
  Tally across(groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].add(phases.before);
    across.clock[i] = groups[i].tally.clock[0];
  }
  (top.forms.*phases.across).cost(top, top_sizes(plan, outline, chunks), across);
  Cost cost;
  for (size_t i = 0; i < groups.size(); ++i) {
    Tally& tally = groups[i].tally;
    tally.clock[0] = across.clock[i];
    tally.sent[0] += across.sent[i];
    tally.received[0] += across.received[i];
    groups[i].add(phases.after);
    cost.rounds = std::max(cost.rounds, most(tally.clock));
    cost.sent_chunks_max = std::max(cost.sent_chunks_max, most(tally.sent));
    cost.received_chunks_max = std::max(cost.received_chunks_max, most(tally.received));
    cost.sent_chunks_sum += std::accumulate(tally.sent.begin(), tally.sent.end(), int64_t{0});
  }
  return cost;
}

std::vector<std::pair<int, int>> host_pairs(const Plan& plan) {
  const Outline outline = outline_of(plan);
  if (plan.hosts.size() == 1) return {};
  std::vector<int> host_of(world_size(plan));
  for (size_t host = 0; host < plan.hosts.size(); ++host)
    host_of[leader_of(plan, static_cast<int>(host))] = static_cast<int>(host);
  const Level top = level_of(top_strategy(plan), outline.leaders);
  std::vector<std::pair<int, int>> pairs;
  const int members = static_cast<int>(top.ranks.size());
  for (int position = 0; position < members; ++position) {
    const int next = neighbour(top, position);
    if (next != position)
      pairs.emplace_back(host_of[top.ranks[position]], host_of[top.ranks[next]]);
  }
  return pairs;
}

}  // namespace tutti

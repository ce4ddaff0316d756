#include "daemon/group/cost_model.h"

#include <array>
#include <limits>

namespace tutti {
namespace {

constexpr std::array kCandidates = {Strategy{StrategyKind::tree, 2},
                                    Strategy{StrategyKind::centralized, 0},
                                    Strategy{StrategyKind::ring, 0}};

// One rank a host: the global level alone, which is all that the links see.
Plan leaders_plan(Collective collective, const Strategy& global, size_t hosts) {
  Plan plan;
  plan.collective = collective;
  plan.strategies = {{StrategyKind::centralized, 0}, global};
  for (size_t host = 0; host < hosts; ++host) plan.hosts.push_back({static_cast<int>(host)});
  return plan;
}

double predicted_us(const Plan& plan, uint64_t bytes, const LinkCost& link) {
  const Cost cost = cost_of(plan);
  const double sent = static_cast<double>(bytes) * cost.sent_chunks_max / chunk_count(plan);
  return cost.rounds * link.message_us + sent * link.byte_us;
}

Strategy cheapest(Collective collective, uint64_t bytes, size_t hosts, const LinkCost& link) {
  Strategy best = kCandidates[0];
  double least = std::numeric_limits<double>::infinity();
  for (const Strategy& candidate : kCandidates) {
    const double us = predicted_us(leaders_plan(collective, candidate, hosts), bytes, link);
    if (us >= least) continue;
    least = us;
    best = candidate;
  }
  return best;
}

}  // namespace

Strategies choose(const Strategies& asked, Collective collective, uint64_t bytes,
                  const std::vector<std::vector<int>>& hosts, const LinkCost& cost) {
  Strategies chosen = asked;
  if (chosen.local.kind == StrategyKind::automatic) chosen.local = {StrategyKind::centralized, 0};
  if (chosen.global.kind == StrategyKind::automatic)
    chosen.global =
        hosts.size() == 1 ? chosen.local : cheapest(collective, bytes, hosts.size(), cost);
  return chosen;
}

}  // namespace tutti

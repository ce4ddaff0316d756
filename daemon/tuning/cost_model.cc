#include "daemon/tuning/cost_model.h"

#include <algorithm>
#include <cmath>

#include "proto/board.h"

namespace tutti {
namespace {

bool combines(Collective collective) {
  return reduces(collective) || collective == Collective::barrier;
}

// The global level alone: one rank per host.
Plan one_rank_per_host_plan(Collective collective, const Strategy& global, int hosts) {
  Plan plan;
  plan.collective = collective;
  plan.strategies = {{StrategyKind::centralized}, global};
  for (int host = 0; host < hosts; ++host) plan.hosts.push_back({host});
  return plan;
}

// The number of children of an inner host of the tree; 1 in a ring.
int fan_of(const Strategy& strategy, int hosts) {
  const int widest = std::max(1, hosts - 1);
  if (strategy.kind == StrategyKind::centralized) return widest;
  if (strategy.kind == StrategyKind::tree)
    return static_cast<int>(std::min<uint32_t>(strategy.arity, static_cast<uint32_t>(widest)));
  return 1;
}

// How the engine cuts the tensor into slices.
struct Cut {
  double piece = 0;   // Bytes of one chunk of a slice.
  double frames = 1;  // Messages per chunk of a host: a block of each of its ranks or their pairs.
  double slices = 1;
};

Cut cut_of(const Workload& work, const Traffic& traffic, const Pipeline& pipeline) {
  const bool blocks = has_blocks(work.collective);
  const double ranks = static_cast<double>(work.ranks) / work.hosts;
  const bool pairs = work.collective == Collective::all_to_all;
  const int chunks = blocks ? work.ranks * (pairs ? work.ranks : 1) : traffic.chunks;
  const double chunk = static_cast<double>(work.bytes) / (blocks ? 1 : chunks);
  const auto parts = static_cast<uint64_t>(chunks);
  const uint64_t part_bytes = whole_slice_bytes(pipeline.slice_bytes, parts) / parts;
  const auto slice = static_cast<double>(part_bytes);
  Cut cut;
  cut.piece = std::min(chunk, slice);
  cut.frames = (blocks ? ranks : 1) * (pairs ? ranks : 1);
  cut.slices = std::max(1.0, std::ceil(chunk / slice));
  return cut;
}

// One pass over the tensors of a host's ranks, for one slice.
double local_us(const Workload& work, const Traffic& traffic, const Cut& cut,
                const HostCost& host) {
  const double ranks = static_cast<double>(work.ranks) / work.hosts;
  const double passes = ranks > 1 ? 2 * ranks + 1 : 0;
  return passes * cut.piece * cut.frames * traffic.chunks * host.fold_byte_us;
}

// The time of the worker's thread per slice: copying in and out, and folding.
double busy_us(const Workload& work, const Traffic& traffic, const Cut& cut, const HostCost& host) {
  const double moved = traffic.sent_chunks + traffic.received_chunks;
  const double combined = combines(work.collective) ? traffic.received_chunks : 0;
  return moved * cut.frames * (host.frame_us + cut.piece * host.copy_byte_us) +
         combined * cut.frames * cut.piece * host.fold_byte_us;
}

// The same for all hosts that share a machine, divided by its cores.
double shared_us(const Workload& work, const Traffic& traffic, const Cut& cut,
                 const HostCost& host) {
  const double a_host = traffic.all_chunks / work.hosts;
  const double combined = combines(work.collective) ? a_host : 0;
  return work.hosts_a_core * cut.frames *
         (2 * a_host * (host.frame_us + cut.piece * host.copy_byte_us) +
          combined * cut.piece * host.fold_byte_us);
}

// The collectives that Ring does not do as a chain.
bool has_ring(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::all_gather ||
         collective == Collective::reduce_scatter;
}

int path_chunks(Collective collective, const Strategy& global, int hosts, const Cost& cost) {
  if (collective == Collective::all_to_all) return cost.sent_chunks_max;
  if (global.kind == StrategyKind::ring && has_ring(collective) && hosts > 1) return cost.rounds;
  // A tree's root sends only what it has received before.
  return std::max((cost.rounds - cost.empty_rounds) * fan_of(global, hosts),
                  cost.sent_chunks_max + cost.received_chunks_max);
}

}  // namespace

Traffic traffic_of(Collective collective, const Strategy& global, int hosts) {
  const Plan plan = one_rank_per_host_plan(collective, global, hosts);
  const Cost cost = cost_of(plan);
  Traffic traffic{cost.rounds,
                  cost.sent_chunks_max,
                  cost.received_chunks_max,
                  0,
                  static_cast<double>(cost.sent_chunks_sum),
                  chunk_count(plan)};
  traffic.path_chunks = path_chunks(collective, global, hosts, cost);
  return traffic;
}

Prediction predict(const Workload& work, const Traffic& traffic, const LinkCost& link,
                   const HostCost& host, const Pipeline& pipeline) {
  const Cut cut = cut_of(work, traffic, pipeline);
  const double local = local_us(work, traffic, cut, host);
  if (work.hosts == 1) return {2 * host.hop_us, cut.slices * local, traffic.rounds, 0};
  const double chunk_us = cut.frames * (host.frame_us + cut.piece * link.byte_us);
  const double copied_us = cut.frames * cut.piece * 2 * host.copy_byte_us;
  const double shared = shared_us(work, traffic, cut, host);
  const double path =
      traffic.rounds * link.message_us + traffic.path_chunks * (chunk_us + copied_us);
  const double first = local + std::max(path, shared);
  const double wire = std::max(traffic.sent_chunks, traffic.received_chunks) * chunk_us;
  const double busy = local + busy_us(work, traffic, cut, host);
  const double interval = std::max({wire, busy, shared, first / pipeline.slices_in_flight});
  const double chunk_bytes = cut.frames * static_cast<double>(work.bytes) /
                             (has_blocks(work.collective) ? 1 : traffic.chunks);
  Prediction prediction;
  prediction.start_us = 2 * host.hop_us;
  prediction.us = first + (cut.slices - 1) * interval;
  prediction.rounds = traffic.rounds;
  prediction.sent_bytes = traffic.sent_chunks * chunk_bytes;
  return prediction;
}

std::vector<Strategy> candidates(Collective collective, int hosts) {
  std::vector<Strategy> list;
  for (const uint32_t arity : {2u, 4u, 1u})
    if (arity < static_cast<uint32_t>(hosts - 1)) list.push_back({StrategyKind::tree, arity});
  list.push_back({StrategyKind::centralized});
  if (collective == Collective::all_to_all) return {{StrategyKind::centralized}};
  if (has_ring(collective) && hosts > 1) list.push_back({StrategyKind::ring});
  return list;
}

Strategies choose(const Strategies& asked, Collective collective, uint64_t bytes,
                  const std::vector<std::vector<int>>& hosts, const LinkCost& link) {
  Strategies chosen = asked;
  if (chosen.local.kind == StrategyKind::automatic) chosen.local = {StrategyKind::centralized};
  if (chosen.global.kind != StrategyKind::automatic) return chosen;
  const int count = static_cast<int>(hosts.size());
  Workload work{collective, bytes, count, 0};
  for (const auto& ranks : hosts) work.ranks += static_cast<int>(ranks.size());
  const std::vector<Strategy> list = candidates(collective, count);
  chosen.global = *std::ranges::min_element(list, {}, [&](const Strategy& strategy) {
    return predict(work, traffic_of(collective, strategy, count), link).us;
  });
  if (count == 1) chosen.global = chosen.local;
  return chosen;
}

}  // namespace tutti

#include "daemon/tuning/cost_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "daemon/base/threads.h"
#include "proto/board.h"

namespace tutti {
namespace {

bool combines(Collective collective) {
  return reduces(collective) || collective == Collective::barrier;
}

// The global level alone: one rank per host.
Plan one_rank_per_host_plan(const Workload& work, const Strategy& global) {
  Plan plan;
  plan.collective = work.collective;
  plan.strategies = {{StrategyKind::centralized}, global};
  for (int host = 0; host < work.hosts; ++host) plan.hosts.push_back({host});
  plan.reproducible = plan.raw = goes_raw(work, global);
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

// Whether streams carry the slices, but for the first, which stays with the worker.
bool is_streamed(const Cut& cut, const HostCost& host) {
  return host.streams > 0 && cut.slices > 1 && cut.piece >= static_cast<double>(kStreamedBytesMin);
}

// One of those who do a host's work at the same time, with what each kind of it costs them: nothing
// where others do it.
struct Party {
  Bound bound;
  HostCost cost;
};
using Parties = std::array<Party, 5>;

// More threads than cores are as fast as the cores, which are a party of their own.
Parties parties_of(const Cut& cut, const HostCost& host) {
  const double frame = host.frame_us, copy = host.copy_byte_us, fold = host.fold_byte_us;
  const double memory = host.memory_byte_us;
  const double cores = std::max(1, host.cores);
  const double streams = is_streamed(cut, host) ? host.streams : 0;
  const double folders = host.folding_ranks;
  return {{{Bound::worker, {0, frame, streams > 0 ? 0 : copy, folders > 0 ? 0 : fold}},
           {Bound::streams, {0, 0, streams > 0 ? copy / streams : 0, 0}},
           {Bound::folds, {0, 0, 0, folders > 0 ? fold / folders : 0}},
           {Bound::memory, {0, 0, 2 * memory, memory}},
           {Bound::cores, {0, frame / cores, copy / cores, fold / cores}}}};
}

// Microseconds by what they are spent on.
struct Times {
  std::array<double, kBoundNames.size()> us{};
  double& operator[](Bound bound) { return us[static_cast<size_t>(bound)]; }
  double sum() const { return std::accumulate(us.begin(), us.end(), 0.0); }
  double longest() const { return std::ranges::max(us); }
  Bound bound() const { return static_cast<Bound>(std::ranges::max_element(us) - us.begin()); }
};

// One pass over the tensors of a host's ranks, for one slice.
double local_us(const Workload& work, const Traffic& traffic, const Cut& cut,
                const HostCost& host) {
  const double ranks = static_cast<double>(work.ranks) / work.hosts;
  const double passes = ranks > 1 ? 2 * ranks + 1 : 0;
  return passes * cut.piece * cut.frames * traffic.chunks * host.fold_byte_us;
}

// What a host does for others per slice, on one core: copying in and out, and folding.
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

Times local_times(const Workload& work, const Traffic& traffic, const Cut& cut,
                  const Parties& parties) {
  Times times;
  for (const auto& [bound, cost] : parties) times[bound] = local_us(work, traffic, cut, cost);
  return times;
}

// From the first host's send to the last host's result, for one slice. `shared`: shared_us().
Times path_times(const Traffic& traffic, const Cut& cut, const LinkCost& link, const HostCost& host,
                 double shared) {
  const double frames = traffic.path_chunks * cut.frames;
  Times times;
  times[Bound::rounds] = traffic.rounds * link.message_us;
  times[Bound::wire] = frames * cut.piece * link.byte_us;
  times[Bound::worker] = frames * host.frame_us;
  times[is_streamed(cut, host) ? Bound::streams : Bound::worker] +=
      frames * cut.piece * 2 * host.copy_byte_us;
  if (times.sum() >= shared) return times;
  Times on_cores;
  on_cores[Bound::cores] = shared;
  return on_cores;
}

// What a host is busy with for each slice.
Times interval_times(const Workload& work, const Traffic& traffic, const Cut& cut,
                     const LinkCost& link, const HostCost& host, const Parties& parties) {
  Times times = local_times(work, traffic, cut, parties);
  for (const auto& [bound, cost] : parties) times[bound] += busy_us(work, traffic, cut, cost);
  times[Bound::wire] = std::max(traffic.sent_chunks, traffic.received_chunks) * cut.frames *
                       (host.frame_us + cut.piece * link.byte_us);
  return times;
}

// The collectives that Ring does not do as a chain.
bool has_ring(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::all_gather ||
         collective == Collective::reduce_scatter;
}

int path_chunks(const Plan& plan, const Cost& cost) {
  const Collective collective = plan.collective;
  const Strategy& global = plan.strategies.global;
  const int hosts = static_cast<int>(plan.hosts.size());
  if (collective == Collective::all_to_all || plan.raw) return cost.sent_chunks_max;
  if (global.kind == StrategyKind::ring && has_ring(collective) && hosts > 1) return cost.rounds;
  // A tree's root sends only what it has received before.
  return std::max((cost.rounds - cost.empty_rounds) * fan_of(global, hosts),
                  cost.sent_chunks_max + cost.received_chunks_max);
}

}  // namespace

bool goes_raw(const Workload& work, const Strategy& global) {
  return work.collective == Collective::all_reduce && global.kind == StrategyKind::centralized &&
         work.hosts == 2 && work.ranks == 2 && work.bytes <= kLoneRawBytesMax;
}

Traffic traffic_of(const Workload& work, const Strategy& global) {
  const Plan plan = one_rank_per_host_plan(work, global);
  const Cost cost = cost_of(plan);
  return {cost.rounds,
          cost.sent_chunks_max,
          cost.received_chunks_max,
          path_chunks(plan, cost),
          static_cast<double>(cost.sent_chunks_sum),
          chunk_count(plan)};
}

Prediction predict(const Workload& work, const Traffic& traffic, const LinkCost& link,
                   const HostCost& host, const Pipeline& pipeline) {
  const Cut cut = cut_of(work, traffic, pipeline);
  const Parties parties = parties_of(cut, host);
  const Times local = local_times(work, traffic, cut, parties);
  Prediction prediction{2 * host.hop_us, cut.slices * local.longest(), traffic.rounds, 0,
                        local.bound()};
  if (work.hosts == 1) return prediction;
  const double shared = shared_us(work, traffic, cut, host);
  Times spent = path_times(traffic, cut, link, host, shared);
  spent[local.bound()] += local.longest();
  const double first = spent.sum();
  Times interval = interval_times(work, traffic, cut, link, host, parties);
  interval[Bound::cores] = std::max(interval[Bound::cores], shared);
  const double others = cut.slices - 1;
  const double waiting = first / pipeline.slices_in_flight;
  if (waiting > interval.longest())
    for (double& us : spent.us) us += others / pipeline.slices_in_flight * us;
  else
    spent[interval.bound()] += others * interval.longest();
  prediction.us = first + others * std::max(waiting, interval.longest());
  prediction.sent_bytes = traffic.sent_chunks * cut.frames * static_cast<double>(work.bytes) /
                          (has_blocks(work.collective) ? 1 : traffic.chunks);
  prediction.bound = spent.bound();
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
    return predict(work, traffic_of(work, strategy), link).us;
  });
  if (count == 1) chosen.global = chosen.local;
  return chosen;
}

}  // namespace tutti

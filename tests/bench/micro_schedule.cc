// How long one worker takes to make its share of a schedule, and the leader to state a plan's cost.
// Promised: under 10 ms for 1,024 hosts (the root of a Centralized all_gather or reduce_scatter
// has a million messages to list, and takes longer).
#include <benchmark/benchmark.h>

#include <string>

#include "daemon/schedule/schedule.h"

namespace tutti {
namespace {

Plan plan_of(Collective collective, const Strategy& global, int hosts, int per_host) {
  Plan plan;
  plan.collective = collective;
  plan.strategies = {{StrategyKind::centralized}, global};
  for (int host = 0; host < hosts; ++host) {
    plan.hosts.emplace_back();
    for (int i = 0; i < per_host; ++i) plan.hosts.back().push_back(host * per_host + i);
  }
  return plan;
}

void steps_of_a_host(benchmark::State& state, const Plan& plan) {
  for (auto _ : state)
    benchmark::DoNotOptimize(steps_of(plan, static_cast<int>(plan.hosts.size() / 2)));
}

void cost_of_a_plan(benchmark::State& state, const Plan& plan) {
  for (auto _ : state) benchmark::DoNotOptimize(cost_of(plan));
}

void register_shape(Collective collective, const Strategy& strategy, int hosts, int per_host) {
  const Plan plan = plan_of(collective, strategy, hosts, per_host);
  const std::string name = "/" + std::string(name_of(collective)) + "/" + to_string(strategy) +
                           "/" + std::to_string(hosts) + "x" + std::to_string(per_host);
  benchmark::RegisterBenchmark(("steps" + name).c_str(), steps_of_a_host, plan)
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark(("cost" + name).c_str(), cost_of_a_plan, plan)
      ->Unit(benchmark::kMicrosecond);
}

const bool kAdded = [] {
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter})
    for (const Strategy& strategy : {Strategy{StrategyKind::centralized},
                                     Strategy{StrategyKind::tree, 2}, Strategy{StrategyKind::ring}})
      for (const int hosts : {64, 1024, 4096})
        for (const int per_host : {1, 8}) register_shape(collective, strategy, hosts, per_host);
  return true;
}();

}  // namespace
}  // namespace tutti

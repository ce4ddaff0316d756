// The plans that the tests of the schedule room prove and break.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "daemon/schedule/checker.h"

namespace tutti {

using Hosts = std::vector<std::vector<int>>;

inline const Strategy kCentral{StrategyKind::centralized};
inline const Strategy kRing{StrategyKind::ring};
inline Strategy tree(uint32_t arity) { return {StrategyKind::tree, arity}; }

inline const std::vector<Strategy> kEveryStrategy = {kCentral, tree(1), tree(2),
                                                     tree(3),  tree(5), kRing};

inline Step send(int peer, int chunk = 0) { return {StepKind::send, peer, chunk}; }
inline Step recv(int peer, int chunk = 0) { return {StepKind::recv, peer, chunk}; }
inline Step reduce(int peer, int chunk = 0) { return {StepKind::recv_reduce, peer, chunk}; }
inline Step finish(int chunk = 0) { return {StepKind::finish, -1, chunk}; }
inline Step notify(int peer) { return {StepKind::notify, peer, 0}; }
inline Step await(int peer) { return {StepKind::await, peer, 0}; }

// Ranks 0..n-1 dealt to hosts of these sizes, in order.
inline Hosts hosts_of(const std::vector<int>& sizes) {
  Hosts hosts;
  int rank = 0;
  for (int size : sizes) {
    hosts.emplace_back();
    for (int i = 0; i < size; ++i) hosts.back().push_back(rank++);
  }
  return hosts;
}

inline Plan plan_of(Collective collective, Strategies strategies, Hosts hosts, int root = 0) {
  return {collective, root, strategies, std::move(hosts)};
}

// The plan with each root it may have: all for a small world, the ends and the middle else.
inline std::vector<Plan> with_roots(const Plan& plan) {
  if (!has_root(plan.collective)) return {plan};
  const int n = world_size(plan);
  std::vector<Plan> plans;
  for (int root = 0; root < n; ++root)
    if (n <= 9 || root == 0 || root == n / 2 || root == n - 1) {
      plans.push_back(plan);
      plans.back().root = root;
    }
  return plans;
}

inline std::vector<Plan> every_plan(const Hosts& hosts, const Strategy& global) {
  std::vector<Plan> plans;
  for (Collective collective : kEveryCollective)
    for (Plan& plan : with_roots(plan_of(collective, {kCentral, global}, hosts)))
      plans.push_back(std::move(plan));
  return plans;
}

// Those of them that reduce, in the order of the ranks; where they can be, raw ones too.
inline std::vector<Plan> every_reproducible_plan(const Hosts& hosts, const Strategy& global) {
  std::vector<Plan> plans;
  for (Plan& plan : every_plan(hosts, global)) {
    if (!reduces(plan.collective)) continue;
    plan.reproducible = true;
    plans.push_back(plan);
    if (global.kind != StrategyKind::centralized) continue;
    plan.raw = true;
    plans.push_back(std::move(plan));
  }
  return plans;
}

// So many hosts of one rank each.
inline Hosts lone_hosts(int n) { return hosts_of(std::vector<int>(static_cast<size_t>(n), 1)); }

inline std::string describe(const Plan& plan) {
  std::string text = std::string(plan.raw ? "raw " : "") +
                     std::string(plan.reproducible ? "reproducible " : "") +
                     std::string(name_of(plan.collective)) + " " + to_string(plan.strategies) +
                     " root " + std::to_string(plan.root) + " hosts";
  for (const auto& ranks : plan.hosts) {
    text += " [";
    for (int rank : ranks) text += std::to_string(rank) + (rank == ranks.back() ? "]" : " ");
  }
  return text;
}

}  // namespace tutti

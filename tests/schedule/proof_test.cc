// Every schedule this room writes, proven.
#include <chrono>
#include <map>

#include "daemon/board/board.h"
#include "tests/schedule/plans.h"

namespace tutti {
namespace {

// Proves the plans and says how many.
int prove(const std::vector<Plan>& plans) {
  for (const Plan& plan : plans) {
    const Status steps = check(plan, schedule_of(plan));
    EXPECT_TRUE(steps.ok()) << describe(plan) << ": " << steps.message();
  }
  return static_cast<int>(plans.size());
}

TEST(ScheduleProof, UpTo64HostsOfOneRank) {
  int proven = 0;
  for (int n = 1; n <= 64; ++n)
    for (const Strategy& strategy : kEveryStrategy)
      proven += prove(every_plan(lone_hosts(n), strategy));
  EXPECT_GE(proven, 3500);
}

TEST(ScheduleProof, HostsOfSeveralRanksEvenAndUneven) {
  const std::vector<std::vector<int>> layouts = {
      {1, 1},    {2, 1},    {2, 2},       {3, 1},       {1, 3},  {5, 2, 1},    {1, 5, 2}, {4, 4},
      {2, 2, 2}, {1, 7, 1}, {4, 4, 4, 4}, {3, 3, 2, 1}, {63, 1}, {9, 1, 1, 9}, {1, 12, 3}};
  int proven = 0;
  for (const auto& sizes : layouts)
    for (const Strategy& strategy : kEveryStrategy)
      proven += prove(every_plan(hosts_of(sizes), strategy));
  EXPECT_GE(proven, 5000 / static_cast<int>(kEveryStrategy.size()));
}

TEST(ScheduleProof, EightHostsOfEight) {
  int proven = 0;
  for (const Strategy& strategy : kEveryStrategy)
    proven += prove(every_plan(hosts_of(std::vector<int>(8, 8)), strategy));
  EXPECT_GE(proven, 6 * 6);
}

TEST(ScheduleProof, RanksDealtInAnyOrderToHosts) {
  const std::vector<Hosts> layouts = {
      {{0, 2}, {1, 3}}, {{2, 3}, {0, 1}}, {{5}, {0, 3, 4}, {1, 2}}, {{1, 4, 6}, {0, 7}, {2, 3, 5}}};
  for (const Hosts& hosts : layouts)
    for (const Strategy& strategy : kEveryStrategy) prove(every_plan(hosts, strategy));
}

TEST(ScheduleProof, FinishIsTakenOncePerChunkByReducersAlone) {
  for (const Strategy& strategy : kEveryStrategy)
    for (const Plan& plan : every_plan(hosts_of({3, 2, 1}), strategy)) {
      int finishes = 0;
      for (const auto& steps : schedule_of(plan))
        finishes += static_cast<int>(std::count_if(
            steps.begin(), steps.end(), [](const Step& s) { return s.kind == StepKind::finish; }));
      const bool combines = reduces(plan.collective) || plan.collective == Collective::barrier;
      EXPECT_EQ(finishes, combines ? chunk_count(plan) : 0) << describe(plan);
    }
}

// Contiguous layouts and others: the checker compares the expression with that of the ranks' order.
TEST(ScheduleProof, ReproducibleReductionsOfAnyLayout) {
  std::vector<Hosts> layouts = {{{0, 2}, {1, 3}},
                                {{2, 3}, {0, 1}},
                                {{5}, {0, 3, 4}, {1, 2}},
                                {{1, 4, 6}, {0, 7}, {2, 3, 5}},
                                {{0, 2, 4, 6}, {1, 3, 5, 7}},
                                {{1}, {0}},
                                {{2}, {0}, {1}}};
  for (int n = 1; n <= 17; ++n) layouts.push_back(lone_hosts(n));
  for (const auto& sizes : std::vector<std::vector<int>>{
           {2, 1}, {1, 2}, {2, 2}, {3, 2, 1}, {1, 7, 1}, {4, 4, 4, 4}, {9, 1, 1, 9}, {8, 8, 8}})
    layouts.push_back(hosts_of(sizes));
  int proven = 0;
  for (const Hosts& hosts : layouts)
    for (const Strategy& strategy : kEveryStrategy)
      proven += prove(every_reproducible_plan(hosts, strategy));
  EXPECT_GE(proven, 1000);
}

// A ring's bytes in all; and no host sends or receives more of them than it does of a ring's, or
// than the tensor twice.
TEST(ScheduleProof, ReproducibleMovementsHaveTheBytesOfARing) {
  const auto sum = [](const Hosts& hosts, const Strategy& strategy) {
    Plan plan = plan_of(Collective::all_reduce, {kCentral, strategy}, hosts);
    const double ring = static_cast<double>(cost_of(plan).sent_chunks_sum) / chunk_count(plan);
    const double part = 2.0 * static_cast<double>(hosts.size() - 1) / hosts.size();
    plan.reproducible = true;
    const Cost cost = cost_of(plan);
    const double most = has_lone_ranks(hosts) ? part : 2;
    EXPECT_LE(cost.sent_chunks_max, most * chunk_count(plan)) << describe(plan);
    EXPECT_LE(cost.received_chunks_max, most * chunk_count(plan)) << describe(plan);
    return static_cast<double>(cost.sent_chunks_sum) / chunk_count(plan) / ring;
  };
  for (int n = 2; n <= 9; ++n) EXPECT_EQ(sum(lone_hosts(n), kRing), 1) << n;
  EXPECT_EQ(sum(hosts_of({2, 2}), kRing), 1);
  EXPECT_EQ(sum(hosts_of({8, 8, 8, 8}), kRing), 1);
}

// Each of n hosts of k ranks sends k chunks to the n-1 others, at once.
TEST(ScheduleProof, RawPlansTakeTheFewestRounds) {
  const auto cost = [](Collective collective, bool raw, int hosts, int ranks) {
    Plan plan = plan_of(collective, {kCentral, kCentral},
                        hosts_of(std::vector<int>(static_cast<size_t>(hosts), ranks)));
    plan.reproducible = true;
    plan.raw = raw;
    return cost_of(plan);
  };
  for (const int n : {2, 3, 8})
    for (const int k : {1, 2, 8}) {
      const Cost all = cost(Collective::all_reduce, true, n, k);
      EXPECT_EQ(all.rounds, 1);
      EXPECT_EQ(all.sent_chunks_max, k * (n - 1));
      EXPECT_EQ(all.received_chunks_max, k * (n - 1));
      EXPECT_EQ(cost(Collective::reduce_scatter, true, n, k).rounds, 1);
      EXPECT_EQ(cost(Collective::reduce, true, n, k).rounds, 2);
      EXPECT_EQ(cost(Collective::all_reduce, false, n, k).rounds, k == 1 ? 2 : n);
    }
}

// Used by this thread: other processes do not count.
double processor_ms() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) / 1e6;
}

TEST(ScheduleProof, StepsOfARingOf1024HostsAreQuick) {
  const Plan plan = plan_of(Collective::all_reduce, {kRing, kRing}, lone_hosts(1024));
  const double before = processor_ms();
  const auto steps = steps_of(plan, 511);
  const double took = processor_ms() - before;
  EXPECT_EQ(steps.size(), 4u * 1023 + 1);
  RecordProperty("steps_ms", std::to_string(took));
  EXPECT_LT(took, 100) << "10 ms unloaded and unsanitized";
}

// ---- The local phase ----

// (a op b), whichever comes first: no operation's bits tell.
std::string combined(const std::string& a, const std::string& b) {
  return "(" + std::min(a, b) + " " + std::max(a, b) + ")";
}

std::string expression_of(const Folds& folds) {
  std::vector<std::string> values;
  for (size_t fold = 0; fold < folds.size(); ++fold) {
    std::string value;
    for (const int term : folds[fold]) {
      const std::string next = term < 0 ? values[static_cast<size_t>(~term)] : std::to_string(term);
      value = value.empty() ? next : combined(value, next);
    }
    values.push_back(std::move(value));
  }
  return values.back();
}

// What a reduce to the first of so many hosts makes there.
std::string expression_of_a_reduce(const Strategy& strategy, int n) {
  const Plan plan = plan_of(Collective::reduce, {kCentral, strategy}, lone_hosts(n));
  std::vector<std::string> values(static_cast<size_t>(n));
  for (int host = n - 1; host >= 0; --host) {  // A heap's members hear from later ones only.
    values[static_cast<size_t>(host)] = std::to_string(host);
    for (const Step& step : steps_of(plan, host))
      if (step.kind == StepKind::recv_reduce)
        values[static_cast<size_t>(host)] =
            combined(values[static_cast<size_t>(host)], values[static_cast<size_t>(step.peer)]);
  }
  return values.front();
}

TEST(LocalFolds, CombineAsHostsOfOneRankEachWould) {
  for (int n = 1; n <= 64; ++n)
    for (const Strategy& strategy : kEveryStrategy)
      EXPECT_EQ(expression_of(local_folds(strategy, n)), expression_of_a_reduce(strategy, n))
          << to_string(strategy) << " of " << n;
}

TEST(LocalFolds, ByHand) {
  using Terms = std::vector<std::vector<int>>;
  const auto terms_of = [](const Strategy& strategy, int n) {
    const Folds folds = local_folds(strategy, n);
    Terms terms;
    for (size_t fold = 0; fold < folds.size(); ++fold)
      terms.emplace_back(folds[fold].begin(), folds[fold].end());
    return terms;
  };
  EXPECT_EQ(terms_of(kCentral, 4), (Terms{{0, 1, 2, 3}}));
  EXPECT_EQ(terms_of(kRing, 4), (Terms{{2, 3, 1, 0}}));
  EXPECT_EQ(terms_of(tree(2), 4), (Terms{{1, 3}, {0, ~0, 2}}));
  EXPECT_EQ(terms_of(tree(2), 7), (Terms{{2, 5, 6}, {1, 3, 4}, {0, ~1, ~0}}));
  for (const Strategy& strategy : kEveryStrategy) EXPECT_EQ(terms_of(strategy, 1), Terms{{0}});
  for (const Strategy& strategy : kEveryStrategy) {
    const int most = static_cast<int>(kLocalRanksMax);
    EXPECT_EQ(expression_of(local_folds(strategy, most)), expression_of_a_reduce(strategy, most));
  }
}

TEST(LocalFolds, AReduceBeginsWithItsRoot) {
  const Hosts hosts = {{0, 2}, {1, 3, 4}};
  const auto order = [&](Collective collective, int host) {
    return fold_order(plan_of(collective, {kCentral, kCentral}, hosts, 3), host);
  };
  EXPECT_EQ(order(Collective::reduce, 1), (std::vector{1, 0, 2}));
  EXPECT_EQ(order(Collective::reduce, 0), (std::vector{0, 1}));
  EXPECT_EQ(order(Collective::all_reduce, 1), (std::vector{0, 1, 2}));
}

// More elements than a block, in every shape: the sums are right and one pass writes each target.
TEST(LocalFolds, AreMadeBlockByBlockInPlace) {
  const uint64_t count = 2 * kFoldBlock + 17;
  for (const Strategy& strategy : kEveryStrategy)
    for (const int n : {1, 2, 5, 9}) {
      std::vector<std::vector<float>> tensors;
      std::vector<const std::byte*> contributions;
      for (int i = 0; i < n; ++i) {
        tensors.emplace_back(count);
        for (uint64_t at = 0; at < count; ++at) tensors.back()[at] = static_cast<float>(i) + at % 7;
        contributions.push_back(reinterpret_cast<const std::byte*>(tensors.back().data()));
      }
      std::vector<float> other(count);
      const std::vector<Target> targets = {{tensors.front().data(), Dtype::f32},
                                           {other.data(), Dtype::f32}};
      const Folds folds = local_folds(strategy, n);
      std::vector<std::byte> scratch(scratch_bytes(folds.size(), Dtype::f32));
      const Kernel kernel = choose_kernel();
      EXPECT_TRUE(run_folds({.folds = folds,
                             .contributions = contributions,
                             .targets = targets,
                             .op = Op::mean,
                             .count = count,
                             .divisor = static_cast<uint32_t>(n),
                             .scratch = scratch},
                            [&](const FoldJob& job) { return kernel(job), true; }));
      for (uint64_t at = 0; at < count; ++at) {
        const float sum = static_cast<float>(n * (n - 1) / 2) + static_cast<float>(n) * (at % 7);
        ASSERT_EQ(other[at], sum / static_cast<float>(n)) << to_string(strategy) << " " << at;
        ASSERT_EQ(tensors.front()[at], other[at]);
      }
    }
}

}  // namespace
}  // namespace tutti

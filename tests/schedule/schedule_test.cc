// The facts of plans, steps written by hand, and costs counted by hand.
#include <gmock/gmock.h>

#include "tests/schedule/plans.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;

Plan flat(Collective collective, Strategy strategy, int n, int root = 0) {
  return plan_of(collective, {strategy, strategy}, lone_hosts(n), root);
}

TEST(Plan, HostOfARank) {
  const Plan plan = plan_of(Collective::reduce, {kRing, kRing}, {{1, 3}, {0, 2, 4}});
  EXPECT_EQ(host_of(plan, 3), 0);
  EXPECT_EQ(host_of(plan, 0), 1);
}

// A host has and wants what its ranks have and want.
TEST(Plan, AHostSpeaksForItsRanks) {
  const auto of = [](Collective collective) {
    return plan_of(collective, {kRing, kRing}, hosts_of({2, 2}), 3);
  };
  const Plan gather = of(Collective::all_gather), scatter = of(Collective::reduce_scatter);
  EXPECT_TRUE(host_contributes(gather, 1, 2) && host_contributes(gather, 1, 3));
  EXPECT_FALSE(host_contributes(gather, 1, 1));
  EXPECT_TRUE(host_wants(gather, 1, 0) && host_contributes(scatter, 1, 0));
  EXPECT_TRUE(host_wants(scatter, 0, 1));
  EXPECT_FALSE(host_wants(scatter, 0, 2));
  EXPECT_TRUE(host_wants(of(Collective::reduce), 1, 0));
  EXPECT_FALSE(host_wants(of(Collective::reduce), 0, 0));
  EXPECT_TRUE(host_contributes(of(Collective::broadcast), 1, 0));
  EXPECT_FALSE(host_contributes(of(Collective::broadcast), 0, 0));
}

TEST(Plan, ChunksContributionsAndWants) {
  const Strategies ring = {kRing, kRing};
  EXPECT_EQ(chunk_count(plan_of(Collective::all_reduce, ring, hosts_of({5}))), 1);
  EXPECT_EQ(chunk_count(plan_of(Collective::all_reduce, ring, hosts_of({5, 2, 1}))), 3);
  EXPECT_EQ(chunk_count(plan_of(Collective::all_reduce, {kRing, kCentral}, hosts_of({5, 2}))), 1);
  EXPECT_EQ(chunk_count(plan_of(Collective::barrier, ring, hosts_of({5}))), 1);
  EXPECT_EQ(chunk_count(plan_of(Collective::reduce, ring, hosts_of({5}))), 1);
  const Plan gather = plan_of(Collective::all_gather, {kCentral, kCentral}, hosts_of({3, 1}));
  EXPECT_EQ(chunk_count(gather), 4);
  EXPECT_TRUE(contributes(gather, 2, 2));
  EXPECT_FALSE(contributes(gather, 2, 1));
  EXPECT_TRUE(wants(gather, 2, 1));
  const Plan broadcast = plan_of(Collective::broadcast, ring, hosts_of({4}), 3);
  EXPECT_TRUE(contributes(broadcast, 3, 0));
  EXPECT_FALSE(contributes(broadcast, 0, 0));
  const Plan reduction = plan_of(Collective::reduce, ring, hosts_of({4}), 3);
  EXPECT_TRUE(wants(reduction, 3, 0));
  EXPECT_FALSE(wants(reduction, 0, 0));
  const Plan scatter = plan_of(Collective::reduce_scatter, ring, hosts_of({4}));
  EXPECT_TRUE(wants(scatter, 1, 1));
  EXPECT_FALSE(wants(scatter, 1, 2));
  EXPECT_TRUE(contributes(scatter, 1, 2));
}

// The block from rank s to rank r is chunk s * 4 + r of an all_to_all.
TEST(Plan, BlocksOfRootedCollectivesAndOfPairs) {
  const Plan gather = plan_of(Collective::gather, {kRing, kRing}, hosts_of({3, 1}), 2);
  EXPECT_EQ(chunk_count(gather), 4);
  EXPECT_TRUE(contributes(gather, 1, 1));
  EXPECT_FALSE(contributes(gather, 2, 1));
  EXPECT_TRUE(wants(gather, 2, 1));
  EXPECT_FALSE(wants(gather, 1, 1));
  const Plan scatter = plan_of(Collective::scatter, {kRing, kRing}, hosts_of({3, 1}), 2);
  EXPECT_EQ(chunk_count(scatter), 4);
  EXPECT_TRUE(contributes(scatter, 2, 1));
  EXPECT_FALSE(contributes(scatter, 1, 1));
  EXPECT_TRUE(wants(scatter, 1, 1));
  EXPECT_FALSE(wants(scatter, 2, 1));
  const Plan pairs = plan_of(Collective::all_to_all, {kRing, kRing}, hosts_of({3, 1}));
  EXPECT_EQ(chunk_count(pairs), 16);
  EXPECT_TRUE(contributes(pairs, 1, 7));
  EXPECT_FALSE(contributes(pairs, 3, 7));
  EXPECT_TRUE(wants(pairs, 3, 7));
  EXPECT_FALSE(wants(pairs, 1, 7));
}

TEST(Steps, RingOf3AllReduce) {
  const Plan plan = flat(Collective::all_reduce, kRing, 3);
  EXPECT_THAT(steps_of(plan, 0),
              ElementsAre(send(1, 2), reduce(2, 1), send(1, 1), reduce(2, 0), finish(0), send(1, 0),
                          recv(2, 2), send(1, 2), recv(2, 1)));
  EXPECT_THAT(steps_of(plan, 1),
              ElementsAre(send(2, 0), reduce(0, 2), send(2, 2), reduce(0, 1), finish(1), send(2, 1),
                          recv(0, 0), send(2, 0), recv(0, 2)));
  EXPECT_THAT(steps_of(plan, 2),
              ElementsAre(send(0, 1), reduce(1, 0), send(0, 0), reduce(1, 2), finish(2), send(0, 2),
                          recv(1, 1), send(0, 1), recv(1, 0)));
}

TEST(Steps, TreeOf7AllReduce) {
  const Plan plan = flat(Collective::all_reduce, tree(2), 7);
  EXPECT_THAT(steps_of(plan, 0),
              ElementsAre(reduce(1, 0), reduce(2, 0), finish(0), send(1, 0), send(2, 0)));
  EXPECT_THAT(steps_of(plan, 1), ElementsAre(reduce(3, 0), reduce(4, 0), send(0, 0), recv(0, 0),
                                             send(3, 0), send(4, 0)));
  EXPECT_THAT(steps_of(plan, 2), ElementsAre(reduce(5, 0), reduce(6, 0), send(0, 0), recv(0, 0),
                                             send(5, 0), send(6, 0)));
  for (int leaf = 3; leaf < 7; ++leaf)
    EXPECT_THAT(steps_of(plan, leaf),
                ElementsAre(send((leaf - 1) / 2, 0), recv((leaf - 1) / 2, 0)));
}

TEST(Steps, AllToAllSendsEachPairsBlockDirectly) {
  const Plan plan = plan_of(Collective::all_to_all, {kCentral, kRing}, hosts_of({1, 2, 1}));
  EXPECT_THAT(steps_of(plan, 0),
              ElementsAre(send(1, 1), send(1, 2), send(2, 3), recv(2, 12), recv(1, 4), recv(1, 8)));
  EXPECT_THAT(steps_of(plan, 2), ElementsAre(send(0, 12), send(1, 13), send(1, 14), recv(1, 7),
                                             recv(1, 11), recv(0, 3)));
}

TEST(Steps, RootComesFirstInTheHeap) {
  const Plan plan = flat(Collective::reduce, tree(2), 4, 2);  // Heap order: 2, 0, 1, 3.
  EXPECT_THAT(steps_of(plan, 2),
              ElementsAre(reduce(0, 0), reduce(1, 0), finish(0), notify(0), notify(1)));
  EXPECT_THAT(steps_of(plan, 0), ElementsAre(reduce(3, 0), send(2, 0), await(2), notify(3)));
  EXPECT_THAT(steps_of(plan, 1), ElementsAre(send(2, 0), await(2)));
  EXPECT_THAT(steps_of(plan, 3), ElementsAre(send(0, 0), await(0)));
}

TEST(Steps, ABroadcastBeginsWhenAllAreReady) {
  const Plan plan = flat(Collective::broadcast, tree(2), 4);
  EXPECT_THAT(steps_of(plan, 0), ElementsAre(await(1), await(2), send(1, 0), send(2, 0)));
  EXPECT_THAT(steps_of(plan, 1), ElementsAre(await(3), notify(0), recv(0, 0), send(3, 0)));
  EXPECT_THAT(steps_of(plan, 3), ElementsAre(notify(1), recv(1, 0)));
}

TEST(Steps, HostsAreInTheOrderOfTheirRanksHoweverTheyAreListed) {
  const Plan plan =
      plan_of(Collective::reduce_scatter, {kCentral, kRing}, {{4, 5}, {2, 3}, {0, 1}});
  EXPECT_THAT(steps_of(plan, 0),
              ElementsAre(send(2, 2), send(2, 3), reduce(1, 0), reduce(1, 1), send(2, 0),
                          send(2, 1), reduce(1, 4), reduce(1, 5), finish(4), finish(5)));
}

TEST(Steps, AHostAloneHasNone) {
  for (const Strategy& strategy : kEveryStrategy)
    for (const Plan& plan : every_plan(hosts_of({5}), strategy))
      EXPECT_THAT(steps_of(plan, 0), ElementsAre()) << describe(plan);
}

void expect_cost(const Plan& plan, int rounds, int sent_chunks_max) {
  const Cost cost = cost_of(plan);
  EXPECT_EQ(cost.rounds, rounds) << describe(plan);
  EXPECT_EQ(cost.sent_chunks_max, sent_chunks_max) << describe(plan);
}

TEST(Cost, RingSends2NMinus1OfNChunks) {
  for (int n : {2, 3, 8, 64})
    expect_cost(flat(Collective::all_reduce, kRing, n), 2 * n - 2, 2 * n - 2);
  expect_cost(flat(Collective::all_gather, kRing, 8), 7, 7);
  expect_cost(flat(Collective::reduce_scatter, kRing, 8), 7, 7);
  expect_cost(flat(Collective::reduce, kRing, 8), 7 + 7, 1);
  expect_cost(flat(Collective::broadcast, kRing, 8), 7 + 7, 1);
  expect_cost(flat(Collective::barrier, kRing, 8), 14, 2);
}

TEST(Cost, CentralizedLoadsItsCentre) {
  expect_cost(flat(Collective::all_reduce, kCentral, 8), 2, 7);
  expect_cost(flat(Collective::reduce, kCentral, 8), 1 + 1, 1);
  expect_cost(flat(Collective::broadcast, kCentral, 8), 1 + 1, 7);
  expect_cost(flat(Collective::all_gather, kCentral, 8), 2, 49);     // 7 ranks lack 7 blocks.
  expect_cost(flat(Collective::reduce_scatter, kCentral, 8), 2, 8);  // A leaf sends all 8.
  expect_cost(flat(Collective::gather, kCentral, 8), 1 + 1, 1);
  expect_cost(flat(Collective::scatter, kCentral, 8), 1 + 1, 7);
}

TEST(Cost, AllToAllIsOneRoundUnderEveryStrategy) {
  for (const Strategy& strategy : kEveryStrategy) {
    expect_cost(flat(Collective::all_to_all, strategy, 8), 1, 7);
    expect_cost(plan_of(Collective::all_to_all, {kCentral, strategy}, hosts_of({3, 1})), 1, 3);
  }
}

TEST(Cost, TreeGoesUpAndDownItsDepth) {
  expect_cost(flat(Collective::all_reduce, tree(2), 7), 4, 3);
  expect_cost(flat(Collective::all_reduce, tree(2), 8), 6, 3);
  expect_cost(flat(Collective::all_reduce, tree(1), 5), 8, 2);
  expect_cost(flat(Collective::all_reduce, tree(5), 4), 2, 3);
  expect_cost(flat(Collective::broadcast, tree(3), 13), 2 + 2, 3);
  expect_cost(flat(Collective::all_gather, tree(2), 3), 2, 4);  // The root: two children, 2 each.
  expect_cost(flat(Collective::reduce_scatter, tree(2), 7), 4, 9);  // Rank 1: 7 up, 2 down.
}

TEST(Cost, WordThatCarriesNoDataIsCountedApart) {
  const auto empty_rounds = [](Collective collective, const Strategy& strategy) {
    return cost_of(flat(collective, strategy, 8)).empty_rounds;
  };
  EXPECT_EQ(empty_rounds(Collective::reduce, tree(2)), 3);
  EXPECT_EQ(empty_rounds(Collective::broadcast, kRing), 7);
  EXPECT_EQ(empty_rounds(Collective::gather, kRing), 7);
  EXPECT_EQ(empty_rounds(Collective::scatter, tree(2)), 3);
  EXPECT_EQ(empty_rounds(Collective::broadcast, kCentral), 1);
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather,
                                      Collective::reduce_scatter, Collective::barrier})
    EXPECT_EQ(empty_rounds(collective, tree(2)), 0);
}

TEST(Cost, AHostsRanksCostItsBlocksAlone) {
  expect_cost(plan_of(Collective::all_reduce, {kCentral, kRing}, hosts_of({4, 4})), 2, 2);
  expect_cost(plan_of(Collective::all_reduce, {kCentral, tree(2)}, hosts_of({3, 3, 3})), 2, 2);
  // Hosts swap 3 blocks and 1.
  expect_cost(plan_of(Collective::all_gather, {kCentral, kRing}, hosts_of({3, 1})), 1, 3);
  expect_cost(plan_of(Collective::all_gather, {kCentral, kRing}, hosts_of({3})), 0, 0);
}

TEST(Cost, TheBusiestReceiverIsTheMirrorOfTheBusiestSender) {
  const auto received = [](Collective collective, const Strategy& strategy) {
    return cost_of(flat(collective, strategy, 8)).received_chunks_max;
  };
  EXPECT_EQ(received(Collective::reduce, kCentral), 7);
  EXPECT_EQ(received(Collective::broadcast, kCentral), 1);
  EXPECT_EQ(received(Collective::all_reduce, tree(2)), 3);
  EXPECT_EQ(received(Collective::all_reduce, kRing), 14);
  EXPECT_EQ(received(Collective::all_gather, kCentral), 7);
  EXPECT_EQ(received(Collective::reduce_scatter, kCentral), 56);  // 8 chunks of 7 leaves.
}

TEST(Cost, AllTogetherSendTheSameToAHeapAndRoundARing) {
  const auto sent = [](const Strategy& strategy) {
    return cost_of(flat(Collective::all_reduce, strategy, 8)).sent_chunks_sum;
  };
  EXPECT_EQ(sent(kCentral), 2 * 7);
  EXPECT_EQ(sent(tree(2)), 2 * 7);
  EXPECT_EQ(sent(kRing), 8 * 2 * 7);  // Of an eighth each.
}

std::vector<std::vector<int>> many_hosts(int hosts, int per_host) {
  return hosts_of(std::vector<int>(static_cast<size_t>(hosts), per_host));
}

TEST(Scale, AThousandHostsTakeNoMoreStepsThanTheirMessages) {
  const auto steps = [](Collective collective, const Strategy& strategy, int host) {
    return steps_of(plan_of(collective, {kCentral, strategy}, many_hosts(1024, 1)), host).size();
  };
  EXPECT_EQ(steps(Collective::all_reduce, kRing, 500), 2 * 2 * 1023 + 1);
  EXPECT_EQ(steps(Collective::all_reduce, tree(2), 0), 2 * 2 + 1);
  EXPECT_EQ(steps(Collective::all_reduce, kCentral, 0), 2 * 1023 + 1);
  EXPECT_EQ(steps(Collective::all_gather, kRing, 500), 2 * 1023);
  EXPECT_EQ(steps(Collective::all_gather, tree(2), 500), 1 + 1 + 1 + 1023 + 1024 + 1022);
  EXPECT_EQ(steps(Collective::barrier, kRing, 500), 4);
}

TEST(Scale, CostsOf4096HostsNeedNoSteps) {
  const auto cost = [](Collective collective, const Strategy& strategy) {
    return cost_of(plan_of(collective, {kCentral, strategy}, many_hosts(4096, 8)));
  };
  EXPECT_EQ(cost(Collective::all_reduce, kRing).rounds, 2 * 4095);
  EXPECT_EQ(cost(Collective::all_reduce, tree(2)).rounds, 2 * 12);
  // The root sends all 8 * 4096 blocks but the host's own to each host.
  EXPECT_EQ(cost(Collective::all_gather, kCentral).sent_chunks_max, 4095 * 4095 * 8);
}

TEST(HostPairs, AreTheEdgesAmongHosts) {
  using Pairs = std::vector<std::pair<int, int>>;
  const auto pairs = [](const Strategy& strategy, int root = 0) {
    const Plan plan =
        plan_of(Collective::broadcast, {kCentral, strategy}, hosts_of({1, 1, 1}), root);
    return host_pairs(plan);
  };
  EXPECT_EQ(pairs(kRing), (Pairs{{0, 1}, {1, 2}, {2, 0}}));
  EXPECT_EQ(pairs(kCentral), (Pairs{{1, 0}, {2, 0}}));
  EXPECT_EQ(pairs(tree(1)), (Pairs{{1, 0}, {2, 1}}));
  EXPECT_EQ(pairs(kCentral, 2), (Pairs{{0, 2}, {1, 2}}));
  EXPECT_TRUE(host_pairs(flat(Collective::broadcast, kRing, 1)).empty());
}

TEST(SchedulesDeathTest, AnUnusablePlanIsABug) {
  Plan plan = flat(Collective::reduce, kRing, 3, 3);
  EXPECT_DEATH(steps_of(plan, 0), "a plan names every rank once");
  plan = flat(Collective::all_reduce, {}, 3);
  EXPECT_DEATH(steps_of(plan, 0), "a plan names every rank once");
  plan = flat(Collective::all_reduce, kCentral, 3);
  plan.raw = true;
  EXPECT_DEATH(steps_of(plan, 0), "a plan names every rank once");
  plan.reproducible = true;
  plan.strategies.global = kRing;
  EXPECT_DEATH(cost_of(plan), "a plan names every rank once");
}

}  // namespace
}  // namespace tutti

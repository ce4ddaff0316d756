// The cost model: predicted times of operations, and the choice by prediction alone.
#include "daemon/tuning/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tuning/strategies.h"

namespace tutti {
namespace {

double us_of(const Workload& work, const Strategy& strategy, const LinkCost& link,
             const HostCost& host = {}) {
  return predict(work, traffic_of(work.collective, strategy, work.hosts), link, host).us;
}

// A host whose own work costs nothing, so that only the links count.
constexpr HostCost kNoHost{0, 0, 0, 0};

TEST(Predict, CountsTheMessagesOfASmallTensor) {
  const LinkCost link{10, 0};
  EXPECT_DOUBLE_EQ(us_of({Collective::all_reduce, 4, 8, 8}, kCentral, link, kNoHost), 20);
  EXPECT_DOUBLE_EQ(us_of({Collective::all_reduce, 4, 8, 8}, tree(2), link, kNoHost), 60);
  EXPECT_DOUBLE_EQ(us_of({Collective::all_reduce, 4, 8, 8}, kRing, link, kNoHost), 140);
  EXPECT_DOUBLE_EQ(us_of({Collective::broadcast, 4, 8, 8}, kCentral, link, kNoHost), 10 + 10)
      << "that all are ready, and the tensor";
  EXPECT_DOUBLE_EQ(us_of({Collective::barrier, 0, 1, 4}, kCentral, link, kNoHost), 0);
}

TEST(Predict, TheStartIsTheTrainersHopsAlone) {
  HostCost host = kNoHost;
  host.hop_us = 3;
  const auto start_us = [&](int hosts) {
    const Workload work{Collective::all_reduce, 4, hosts, hosts};
    return predict(work, traffic_of(work.collective, kCentral, hosts), {10, 0}, host).start_us;
  };
  EXPECT_DOUBLE_EQ(start_us(8), 6);
  EXPECT_DOUBLE_EQ(start_us(1), 6);
}

TEST(Predict, CountsTheBytesOfALargeTensor) {
  const LinkCost link{0, 0.001};
  const auto us = [&](const Strategy& strategy) {
    return us_of({Collective::all_reduce, 256 * kMiB, 4, 4}, strategy, link, kNoHost);
  };
  const double tensor_us = 256 * kMiB * 0.001;
  EXPECT_NEAR(us(kRing), 1.5 * tensor_us, 0.01 * tensor_us);   // 2 (n-1) / n.
  EXPECT_NEAR(us(kCentral), 3 * tensor_us, 0.02 * tensor_us);  // The root takes in three.
  EXPECT_NEAR(us(tree(1)), 2 * tensor_us, 0.02 * tensor_us);   // The chain's inner hosts send two.
}

TEST(Predict, HostsOfOneMachineShareItsCores) {
  HostCost host = kNoHost;
  host.frame_us = 10;
  const LinkCost link{0, 0};
  Workload work{Collective::all_reduce, 4, 4, 4};
  // A frame is sent and received: 6 in the star, 24 in the ring.
  EXPECT_DOUBLE_EQ(us_of(work, kRing, link, host), 6 * 10);
  work.hosts_a_core = 2;
  EXPECT_DOUBLE_EQ(us_of(work, kCentral, link, host), 6 * 2 * 10 / 2.0);
  EXPECT_DOUBLE_EQ(us_of(work, kRing, link, host), 24 * 2 * 10 / 2.0);
}

TEST(Predict, BlocksCountWhole) {
  const LinkCost link{0, 0.001};
  // A block of 1 MiB from each of 8 ranks on 4 hosts: every host receives six.
  const Prediction ring = predict({Collective::all_gather, kMiB, 4, 8},
                                  traffic_of(Collective::all_gather, kRing, 4), link, kNoHost);
  EXPECT_EQ(ring.sent_bytes, 6 * kMiB);
  EXPECT_NEAR(ring.us, 6 * kMiB * 0.001, 1);
}

// 8 ranks on 4 hosts: a host sends the blocks of its 2 ranks for the 6 others.
TEST(Predict, PairsSendTheirBlocksOnce) {
  const Prediction pairs =
      predict({Collective::all_to_all, kMiB, 4, 8}, traffic_of(Collective::all_to_all, kRing, 4),
              {0, 0.001}, kNoHost);
  EXPECT_EQ(pairs.sent_bytes, 2 * 6 * kMiB);
  EXPECT_NEAR(pairs.us, 2 * 6 * kMiB * 0.001, 1);
  EXPECT_EQ(candidates(Collective::all_to_all, 4).size(), 1u);
}

TEST(Predict, TheWorkersThreadCanBeTheLimit) {
  HostCost host = kNoHost;
  host.copy_byte_us = 0.01;
  const Workload work{Collective::all_reduce, 256 * kMiB, 2, 2};
  const double both_ways = 2 * 256 * kMiB * 0.01;
  EXPECT_NEAR(us_of(work, kRing, {0, 0.0001}, host), both_ways, 0.05 * both_ways);
}

TEST(Predict, ThousandsOfHostsCostNoTimeWorthNaming) {
  const Workload work{Collective::all_reduce, 1024 * kMiB, 4096, 8 * 4096};
  const LinkCost link{50, 0.00008};
  EXPECT_LT(us_of(work, tree(2), link), us_of(work, kCentral, link));
  EXPECT_GT(us_of(work, kRing, link), 2 * 4095 * 50);
}

TEST(Candidates, AreThoseThatDiffer) {
  using ::testing::ElementsAre;
  EXPECT_THAT(candidates(Collective::all_reduce, 1), ElementsAre(kCentral));
  EXPECT_THAT(candidates(Collective::all_reduce, 2), ElementsAre(kCentral, kRing));
  EXPECT_THAT(candidates(Collective::all_reduce, 4),
              ElementsAre(tree(2), tree(1), kCentral, kRing));
  EXPECT_THAT(candidates(Collective::broadcast, 8),
              ElementsAre(tree(2), tree(4), tree(1), kCentral));
}

TEST(Choose, AutoIsDecidedByBytesAndNeverLeftOpen) {
  const std::vector<std::vector<int>> hosts = {{0, 1}, {2, 3}, {4}, {5}, {6}, {7}, {8}, {9}};
  const Strategies small = choose({}, Collective::all_reduce, 4, hosts);
  const Strategies large = choose({}, Collective::all_reduce, uint64_t{256} << 20, hosts);
  EXPECT_EQ(small.local.kind, StrategyKind::centralized);
  EXPECT_NE(small.global.kind, StrategyKind::ring);
  EXPECT_NE(small.global.kind, StrategyKind::automatic);
  EXPECT_EQ(large.global.kind, StrategyKind::ring);
}

TEST(Choose, WhatIsAskedForIsKept) {
  const Strategies asked{{StrategyKind::tree, 3}, {StrategyKind::ring, 0}};
  EXPECT_EQ(choose(asked, Collective::broadcast, 10, {{0}, {1}}), asked);
}

}  // namespace
}  // namespace tutti

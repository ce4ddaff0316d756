// The cost model: predicted times of operations, and the choice by prediction alone.
#include "daemon/tuning/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tuning/strategies.h"

namespace tutti {
namespace {

double us_of(const Workload& work, const Strategy& strategy, const LinkCost& link,
             const HostCost& host = {}) {
  return predict(work, traffic_of(work, strategy), link, host).us;
}

// A host whose own work costs nothing, so that only the links count.
constexpr HostCost kNoHost{0, 0, 0, 0, 0};
constexpr LinkCost kNoLink{0, 0};

// 64 MiB on two hosts by a ring: 64 slices of 2 chunks of 512 KiB, of which a host sends and
// receives 2.
constexpr Workload large_work(int ranks) {
  return {Collective::all_reduce, 64 * kMiB, 2, 2 * ranks};
}
constexpr double kPiece = 512 * 1024;
constexpr int kSlices = 64;

TEST(Predict, CountsTheMessagesOfASmallTensor) {
  const LinkCost link{10, 0};
  EXPECT_DOUBLE_EQ(us_of({Collective::all_reduce, 4, 8, 8}, kCentral, link, kNoHost), 20);
  EXPECT_DOUBLE_EQ(us_of({Collective::all_reduce, 4, 2, 2}, kCentral, link, kNoHost), 10);
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
    return predict(work, traffic_of(work, kCentral), {10, 0}, host).start_us;
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

TEST(Predict, TwoRanksSendSmallTensorsToEachOther) {
  const auto rounds = [](uint64_t bytes, int hosts, int ranks, const Strategy& strategy = kCentral,
                         Collective collective = Collective::all_reduce) {
    return traffic_of({collective, bytes, hosts, ranks}, strategy).rounds;
  };
  EXPECT_EQ(rounds(kLoneRawBytesMax, 2, 2), 1);
  EXPECT_EQ(rounds(kLoneRawBytesMax + 4, 2, 2), 2);
  EXPECT_EQ(rounds(uint64_t{1} << 63, 2, 2), 2);
  EXPECT_EQ(rounds(4, 2, 3), 2);
  EXPECT_EQ(rounds(4, 3, 3), 2);
  EXPECT_EQ(rounds(4, 2, 2, kRing), 2);
  EXPECT_EQ(rounds(4, 2, 2, kCentral, Collective::reduce), 2);
  const Traffic two = traffic_of({Collective::all_reduce, 4, 2, 2}, kCentral);
  EXPECT_EQ(two.sent_chunks, 1);
  EXPECT_EQ(two.path_chunks, 1);
  EXPECT_EQ(two.all_chunks, 2);
}

TEST(Predict, BlocksCountWhole) {
  const LinkCost link{0, 0.001};
  // A block of 1 MiB from each of 8 ranks on 4 hosts: every host receives six.
  const Workload work{Collective::all_gather, kMiB, 4, 8};
  const Prediction ring = predict(work, traffic_of(work, kRing), link, kNoHost);
  EXPECT_EQ(ring.sent_bytes, 6 * kMiB);
  EXPECT_NEAR(ring.us, 6 * kMiB * 0.001, 1);
}

// 8 ranks on 4 hosts: a host sends the blocks of its 2 ranks for the 6 others.
TEST(Predict, PairsSendTheirBlocksOnce) {
  const Workload work{Collective::all_to_all, kMiB, 4, 8};
  const Prediction pairs = predict(work, traffic_of(work, kRing), {0, 0.001}, kNoHost);
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

TEST(Predict, StreamsShareWhatIsCopied) {
  HostCost host = kNoHost;
  host.copy_byte_us = 0.001;
  host.cores = 16;
  const double chunk_us = kPiece * host.copy_byte_us;
  const auto us = [&](int streams) {
    host.streams = streams;
    return us_of(large_work(1), kRing, kNoLink, host);
  };
  // The path copies 2 chunks into a socket and out of it; an interval copies 2 in and 2 out.
  EXPECT_NEAR(us(0), (4 + (kSlices - 1) * 4) * chunk_us, 0.01);
  EXPECT_NEAR(us(2), (4 + (kSlices - 1) * 2) * chunk_us, 0.01);
  EXPECT_NEAR(us(4), (4 + (kSlices - 1) * 1) * chunk_us, 0.01);
  // With 4 slices in flight a slice's time is the limit.
  EXPECT_NEAR(us(16), us(4), 0.01);
  host.cores = 2;
  EXPECT_NEAR(us(4), us(2), 0.01) << "no more threads than cores";
}

TEST(Predict, SmallPayloadsGoByNoStream) {
  HostCost host = kNoHost;
  host.copy_byte_us = 0.001;
  host.cores = 16;
  const auto us = [&](const Workload& work, int streams) {
    host.streams = streams;
    return us_of(work, kRing, kNoLink, host);
  };
  const Workload of_eight{Collective::all_reduce, 64 * kMiB, 8, 8};
  const Workload of_nine{Collective::all_reduce, 64 * kMiB, 9, 9};  // 116 KiB of 1 MiB.
  EXPECT_LT(us(of_eight, 2), us(of_eight, 0));
  EXPECT_DOUBLE_EQ(us(of_nine, 2), us(of_nine, 0));
  const Workload one_slice{Collective::all_reduce, kMiB, 2, 2};
  EXPECT_DOUBLE_EQ(us(one_slice, 2), us(one_slice, 0)) << "the first slice is the worker's";
}

TEST(Predict, RanksThatWaitShareTheFolds) {
  HostCost host = kNoHost;
  host.fold_byte_us = 0.001;
  host.cores = 16;
  const double chunk_us = kPiece * host.fold_byte_us;
  const auto us = [&](int folding_ranks) {
    host.folding_ranks = folding_ranks;
    return us_of(large_work(4), kRing, kNoLink, host);
  };
  // 4 ranks read and written, and the sum: 9 passes over 2 chunks, and 2 chunks that came.
  EXPECT_NEAR(us(0), (18 + (kSlices - 1) * 20) * chunk_us, 0.1);
  EXPECT_NEAR(us(1), us(0), 0.1);
  EXPECT_NEAR(us(4), us(0) / 4, 0.1);
  host.memory_byte_us = 0.0005;
  // Memory also gives and takes what sockets copy: 2 chunks in and 2 out.
  EXPECT_NEAR(us(4), (18 + (kSlices - 1) * (20 + 4 * 2)) * chunk_us / 2, 0.1);
  host.cores = 1;
  EXPECT_NEAR(us(4), us(0), 0.1);
}

TEST(Predict, ThreadsShareTheCores) {
  HostCost host = kNoHost;
  host.copy_byte_us = 0.001;
  host.fold_byte_us = 0.001;
  host.streams = 4;
  host.folding_ranks = 4;
  host.cores = 4;
  const double chunk_us = kPiece * host.copy_byte_us;
  EXPECT_NEAR(us_of(large_work(4), kRing, kNoLink, host),
              (18 / 4.0 + 4 + (kSlices - 1) * (20 + 4) / 4.0) * chunk_us, 0.1);
}

TEST(Predict, MoreThreadsAreNeverSlower) {
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::all_to_all})
    for (const int hosts : {1, 2, 8, 64})
      for (const Strategy& strategy : candidates(collective, hosts))
        for (const uint64_t bytes : {4 * kMiB, 64 * kMiB}) {
          const Workload work{collective, bytes, hosts, 8 * hosts};
          HostCost host;
          double before = us_of(work, strategy, {10, 0.00002}, host);
          const auto grow = [&](int& count, int to) {
            count = to;
            const double us = us_of(work, strategy, {10, 0.00002}, host);
            EXPECT_LE(us, before * (1 + 1e-9)) << hosts << to_string(strategy) << bytes;
            before = us;
          };
          for (const int cores : {2, 4, 16, 32}) grow(host.cores, cores);
          for (const int streams : {1, 2, 4, 8, 16}) grow(host.streams, streams);
          for (const int ranks : {1, 2, 4, 8}) grow(host.folding_ranks, ranks);
          for (const int cores : {64, 128}) grow(host.cores, cores);
        }
}

TEST(Predict, SaysWhatMostOfTheTimeIsSpentOn) {
  const auto bound = [](const Workload& work, const LinkCost& link, const HostCost& host) {
    return predict(work, traffic_of(work, kRing), link, host).bound;
  };
  HostCost host{30, 6, 0.0002, 0.0001};
  const LinkCost fast{10, 0.00002};
  EXPECT_EQ(bound({Collective::all_reduce, 4, 8, 8}, {50, 0.001}, host), Bound::rounds);
  EXPECT_EQ(bound({Collective::all_reduce, 0, 1, 1}, fast, host), Bound::worker);
  EXPECT_EQ(bound(large_work(1), {50, 0.008}, host), Bound::wire);
  HostCost streams = host;
  streams.streams = 4;
  EXPECT_EQ(bound({Collective::all_reduce, kMiB, 2, 2}, fast, streams), Bound::worker)
      << "the first slice goes by no stream";
  EXPECT_EQ(bound(large_work(8), fast, host), Bound::worker);
  host.cores = 32;
  host.folding_ranks = 8;
  EXPECT_EQ(bound(large_work(8), fast, host), Bound::worker) << "it copies";
  host.streams = 2;
  EXPECT_EQ(bound(large_work(2), fast, host), Bound::streams);
  host.streams = 4;
  host.folding_ranks = 2;
  EXPECT_EQ(bound(large_work(8), fast, host), Bound::folds);
  host.folding_ranks = 8;
  host.memory_byte_us = 0.0001;
  EXPECT_EQ(bound(large_work(8), fast, host), Bound::memory);
  host.memory_byte_us = 0;
  host.cores = 4;
  EXPECT_EQ(bound(large_work(8), fast, host), Bound::cores);
}

// `auto` compares strategies by these; a change of the model that is not meant for it leaves them.
TEST(Predict, TheDefaultsAreOneThread) {
  const auto us = [](const Workload& work, const Strategy& strategy, const LinkCost& link,
                     int slices_in_flight) {
    const Traffic traffic = traffic_of(work, strategy);
    return predict(work, traffic, link, {}, {kMiB, slices_in_flight}).us;
  };
  const Workload small{Collective::all_reduce, 65536, 4, 32};
  EXPECT_NEAR(us(small, kRing, {}, 4), 576.224, 1e-6);
  EXPECT_NEAR(us(small, kCentral, {}, 4), 542.6624, 1e-6);
  const Workload large{Collective::all_reduce, 64 * kMiB, 128, 1024};
  EXPECT_NEAR(us(large, kRing, {10, 0.00002}, 16), 178'104.12288, 1e-3);
  EXPECT_NEAR(us(large, tree(2), {10, 0.00002}, 16), 182'574.55616, 1e-3);
  EXPECT_NEAR(us(large, kCentral, {10, 0.00002}, 16), 2'787'132.46848, 1e-3);
  const Workload shared{Collective::all_reduce, 16 * kMiB, 8, 16, 1};
  EXPECT_NEAR(us(shared, tree(1), {50, 0.00008}, 4), 25'738.85312, 1e-3);
  const Workload blocks{Collective::all_gather, kMiB, 4, 8};
  EXPECT_NEAR(us(blocks, tree(2), {}, 4), 8'138.3168, 1e-4);
  const Workload chain{Collective::broadcast, kMiB, 9, 9};
  EXPECT_NEAR(us(chain, tree(4), {100, 0.008}, 4), 69'234.5856, 1e-4);
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

TEST(Choose, AutoIsByOneThread) {
  const auto chosen = [](Collective collective, int count, uint64_t bytes) {
    std::vector<std::vector<int>> hosts(static_cast<size_t>(count));
    for (int host = 0; host < count; ++host)
      for (int rank = 0; rank < 8; ++rank)
        hosts[static_cast<size_t>(host)].push_back(8 * host + rank);
    return choose({}, collective, bytes, hosts).global;
  };
  EXPECT_EQ(chosen(Collective::all_reduce, 4, 4), kCentral);
  EXPECT_EQ(chosen(Collective::all_reduce, 4, kMiB / 4), kRing);
  EXPECT_EQ(chosen(Collective::all_reduce, 128, 4), tree(4));
  EXPECT_EQ(chosen(Collective::all_reduce, 128, kMiB / 4), tree(2));
  EXPECT_EQ(chosen(Collective::all_reduce, 128, kMiB), kRing);
  EXPECT_EQ(chosen(Collective::broadcast, 4, kMiB / 4), kCentral);
  EXPECT_EQ(chosen(Collective::broadcast, 4, kMiB), tree(1));
  EXPECT_EQ(chosen(Collective::broadcast, 16, 4 * kMiB), tree(2));
}

TEST(Choose, WhatIsAskedForIsKept) {
  const Strategies asked{{StrategyKind::tree, 3}, {StrategyKind::ring, 0}};
  EXPECT_EQ(choose(asked, Collective::broadcast, 10, {{0}, {1}}), asked);
}

}  // namespace
}  // namespace tutti

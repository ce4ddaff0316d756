// Many small operations at once: what travels together, what runs as one, and that no result
// shows it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "daemon/group/control.h"
#include "daemon/group/fuse.h"
#include "daemon/group/outbox.h"
#include "proto/board.h"
#include "tests/tensors.h"

namespace tutti {
namespace {

using testing::Bytes;
using testing::Cluster;
using testing::ClusterOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Tensors;

constexpr Strategy kTree{StrategyKind::tree, 2};
constexpr Strategy kRing{StrategyKind::ring, 0};

Signature all_reduce_of(uint64_t count, Dtype dtype = Dtype::f32, Op op = Op::sum,
                        Strategies strategies = {}) {
  return {Collective::all_reduce, dtype, op, count, 0, strategies};
}

// ---- What runs as one ----

class FuserTest : public ::testing::Test {
 protected:
  void add(uint64_t seq, const Signature& signature, uint32_t group = 0) {
    fuser_.add({group, {seq}, {kTree, kTree}, 1024}, signature);
  }
  std::vector<std::vector<uint64_t>> taken() {
    std::vector<std::vector<uint64_t>> seqs;
    for (const StartOrder& order : fuser_.take()) seqs.push_back(order.seqs);
    return seqs;
  }
  using Seqs = std::vector<uint64_t>;

  Fuser fuser_{{.op_bytes_max = 400, .fused_bytes_max = 1000, .ops_max = 4}};
};

TEST_F(FuserTest, TakesSmallAllReducesThatFoldAlikeEverywhere) {
  EXPECT_TRUE(fuser_.takes(all_reduce_of(100), {kTree, kTree}));
  EXPECT_TRUE(fuser_.takes(all_reduce_of(0), {kTree, kTree}));
  EXPECT_FALSE(fuser_.takes(all_reduce_of(101), {kTree, kTree}));
  EXPECT_FALSE(fuser_.takes(all_reduce_of(1), {kTree, kRing}));
  EXPECT_FALSE(fuser_.takes(all_reduce_of(1), {kRing, kTree}));
  EXPECT_FALSE(fuser_.takes({Collective::broadcast, Dtype::f32, Op::sum, 1}, {kTree, kTree}));
  EXPECT_FALSE(Fuser({400, 1000, 1}).takes(all_reduce_of(1), {kTree, kTree}));
}

TEST_F(FuserTest, JoinsWhatFitsInOrderAndKeepsItsLimits) {
  for (uint64_t seq = 0; seq < 6; ++seq) add(seq, all_reduce_of(1));
  EXPECT_THAT(taken(), ElementsAre(Seqs{0, 1, 2, 3}, Seqs{4, 5}));
  EXPECT_TRUE(fuser_.empty());
  for (uint64_t seq = 0; seq < 3; ++seq) add(seq, all_reduce_of(100));
  EXPECT_THAT(taken(), ElementsAre(Seqs{0, 1}, Seqs{2}));
}

TEST_F(FuserTest, KeepsApartWhatDiffers) {
  add(0, all_reduce_of(1));
  add(1, all_reduce_of(1, Dtype::f64));
  add(2, all_reduce_of(2));
  add(3, all_reduce_of(1, Dtype::f32, Op::max));
  add(0, all_reduce_of(1), 7);
  fuser_.add({0, {4}, {kTree, {StrategyKind::centralized, 0}}, 1024}, all_reduce_of(1));
  EXPECT_THAT(taken(), ElementsAre(Seqs{0, 2}, Seqs{1}, Seqs{3}, Seqs{0}, Seqs{4}));
}

TEST(PackingTest, CopiesInOnceAndOutWhenTold) {
  std::array<std::byte, 6> memory{std::byte{1}, std::byte{2}, std::byte{3}};
  const Packing packing({{memory.data(), memory.data() + 3, 1},
                         {nullptr, nullptr, 0},
                         {memory.data() + 1, memory.data() + 4, 2}});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(packing.data()[i], std::byte(i + 1));
  EXPECT_EQ(memory[3], std::byte{0});
  packing.unpack();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(memory[static_cast<size_t>(3 + i)], std::byte(i + 1));
}

// ---- What travels together ----

class OutboxTest : public ::testing::Test {
 protected:
  void add(int host, uint64_t seq, Hurry hurry) {
    v1::Control control;
    control.set_op_seq(seq);
    outbox_.add(host, control, hurry);
  }
  // Turns the loop until something was sent.
  std::vector<std::string> sent() {
    while (sent_.empty()) loop_.turn(TimePoint::max());
    return std::exchange(sent_, {});
  }

  static constexpr uint64_t kBytesMost = 32 << 10;

  Loop loop_;
  std::vector<std::string> sent_;  // "host: seq seq ...", by frame.
  Outbox outbox_{loop_, 3, std::chrono::milliseconds(5), kBytesMost,
                 [this](int host, const v1::ControlBatch& batch) {
                   std::string text = std::to_string(host) + ":";
                   for (const v1::Control& control : batch.controls())
                     text += " " + std::to_string(control.op_seq());
                   sent_.push_back(text);
                 }};
};

TEST_F(OutboxTest, OneFrameAHostAndTurnInOrder) {
  add(1, 0, Hurry::this_turn);
  add(2, 1, Hurry::this_turn);
  add(1, 2, Hurry::this_turn);
  EXPECT_TRUE(sent_.empty());
  EXPECT_THAT(sent(), ElementsAre("1: 0 2", "2: 1"));
}

TEST_F(OutboxTest, AnUrgentMessageTakesAllBeforeItAlong) {
  add(1, 0, Hurry::budget);
  add(2, 1, Hurry::budget);
  add(1, 2, Hurry::now);
  EXPECT_THAT(std::exchange(sent_, {}), ElementsAre("1: 0 2"));
  EXPECT_THAT(sent(), ElementsAre("2: 1"));
}

TEST_F(OutboxTest, WhatMayWaitLeavesWhenItsBudgetIsSpent) {
  const TimePoint before = Clock::now();
  add(1, 0, Hurry::budget);
  add(1, 1, Hurry::budget);
  EXPECT_THAT(sent(), ElementsAre("1: 0 1"));
  EXPECT_GE(Clock::now() - before, Millis(5));
}

TEST_F(OutboxTest, AFullFrameLeavesAtOnce) {
  for (uint64_t seq = 0; seq < 1024; ++seq) add(1, seq, Hurry::budget);
  EXPECT_EQ(sent_.size(), 1u);
}

TEST_F(OutboxTest, AFrameIsFullByItsBytesToo) {
  v1::Control large;
  large.mutable_abort()->set_message(std::string(kBytesMost / 2 - 100, 'x'));
  for (int i = 0; i < 3; ++i) outbox_.add(1, large, Hurry::this_turn);
  EXPECT_THAT(sent_, ElementsAre("1: 0 0"));
}

// ---- Between hosts ----

uint64_t frames_of(Cluster& cluster) {
  uint64_t frames = 0;
  for (const auto& host : cluster.hosts)
    host->run([&] { frames += host->world->stats().sent_frames; });
  return frames;
}

std::future<Status> submit_here(Cluster& cluster, World& world, int rank, Call call) {
  call.number = cluster.take_number(rank);
  auto done = std::make_shared<std::promise<Status>>();
  call.done = [done](const Status& status) { done->set_value(status); };
  world.submit(rank, 0, std::move(call));
  return done->get_future();
}

// Queues every operation on every rank, a host's all in one turn of its loop; waits for all, checks
// all; returns how many frames it took.
uint64_t queued(Cluster& cluster, const std::vector<Signature>& signatures) {
  const uint64_t before = frames_of(cluster);
  std::vector<std::unique_ptr<Tensors>> tensors;
  for (const Signature& signature : signatures)
    tensors.push_back(std::make_unique<Tensors>(cluster, signature));
  std::vector<std::future<Status>> ends;
  for (const auto& host : cluster.hosts)
    host->run([&] {
      for (const auto& tensor : tensors)
        for (int rank = 0; rank < cluster.size(); ++rank)
          if (cluster.host_of[rank] == host.get())
            ends.push_back(submit_here(cluster, *host->world, rank, tensor->call(rank)));
    });
  for (auto& end : ends) {
    const Status status = end.get();
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  for (const auto& tensor : tensors) tensor->check();
  return frames_of(cluster) - before;
}

uint64_t one_by_one(Cluster& cluster, const std::vector<Signature>& signatures) {
  const uint64_t before = frames_of(cluster);
  for (const Signature& signature : signatures) Tensors(cluster, signature).run_and_check();
  return frames_of(cluster) - before;
}

TEST(CoalescingTest, AThousandQueuedTakeFewerThanATenthOfTheFrames) {
  Cluster cluster({2, 2});
  const std::vector<Signature> thousand(1000, all_reduce_of(1024));
  const uint64_t alone = one_by_one(cluster, thousand);
  const uint64_t together = queued(cluster, thousand);
  EXPECT_LT(together * 10, alone) << together << " frames queued, " << alone << " one by one";
  RecordProperty("frames_queued", static_cast<int>(together));
  RecordProperty("frames_one_by_one", static_cast<int>(alone));
}

TEST(CoalescingTest, EveryMixtureByValue) {
  for (const std::vector<int>& shape : {std::vector<int>{2, 2}, {1, 1, 1}, {3, 1}, {2}}) {
    Cluster cluster(shape);
    std::vector<Signature> mixed;
    for (uint64_t i = 0; i < 300; ++i) {
      const auto dtype = static_cast<Dtype>(i % 3 == 0 ? i % kDtypes : 0);
      const auto op = static_cast<Op>(i % 5 == 0 ? 2 : 0);
      const Strategies strategies = i % 7 == 0 ? Strategies{kRing, kRing} : Strategies{};
      mixed.push_back(all_reduce_of(i * 13 % 500, dtype, op, strategies));
      if (i % 50 == 0) mixed.push_back(all_reduce_of(300'000));
      if (i % 40 == 0) mixed.push_back({Collective::all_gather, Dtype::f32, Op::sum, 100});
      if (i % 60 == 0) mixed.push_back({});  // A barrier.
    }
    queued(cluster, mixed);
  }
}

TEST(CoalescingTest, FusingChangesNoBit) {
  // Sums of such numbers depend on their order.
  const auto reduce = [](uint32_t ops_max) {
    ClusterOptions options;
    options.world.fuse_ops_max = ops_max;
    Cluster cluster({2, 2, 1}, options);
    std::vector<Bytes> tensors;
    std::vector<std::future<Status>> ends;
    for (int i = 0; i < 200; ++i)
      for (int rank = 0; rank < cluster.size(); ++rank) {
        Bytes& x = tensors.emplace_back(400);
        for (size_t at = 0; at < 100; ++at)
          testing::put(x, Dtype::f32, at,
                       std::exp(static_cast<double>((at * 31 + size_t(i * rank)) % 37)));
        Call call;
        call.signature = all_reduce_of(100);
        call.in = call.out = x.data();
        ends.push_back(cluster.submit(rank, call));
      }
    for (auto& end : ends) EXPECT_TRUE(end.get().ok());
    return tensors;
  };
  EXPECT_EQ(reduce(1), reduce(256));
}

// ---- Failures among them ----

TEST(CoalescingTest, OneThatDisagreesFailsAloneAmongTheQueued) {
  Cluster cluster({2, 2});
  std::vector<std::unique_ptr<Tensors>> tensors;
  std::vector<std::vector<std::future<Status>>> ends(30);
  for (size_t i = 0; i < ends.size(); ++i)
    for (int rank = 0; rank < cluster.size(); ++rank) {
      const bool odd = i == 11 && rank == 3;
      tensors.push_back(std::make_unique<Tensors>(cluster, all_reduce_of(odd ? 9 : 10)));
      ends[i].push_back(cluster.submit(rank, tensors.back()->call(rank)));
    }
  for (size_t i = 0; i < ends.size(); ++i)
    for (auto& end : ends[i]) {
      const Status status = end.get();
      EXPECT_EQ(status.code(), i == 11 ? Code::failed_precondition : Code::ok) << i;
      if (i == 11) {
        EXPECT_THAT(status.message(), HasSubstr("operation #11"));
      }
    }
}

TEST(CoalescingTest, ARankThatDiesFailsWhatItHadNotReachedEachByItsOwnName) {
  Cluster cluster({2, 2});
  Tensors warm(cluster, all_reduce_of(10));
  warm.run_and_check();
  std::vector<std::unique_ptr<Tensors>> tensors;
  std::vector<std::future<Status>> ends;
  for (int i = 0; i < 20; ++i) {
    tensors.push_back(std::make_unique<Tensors>(cluster, all_reduce_of(10)));
    for (const int rank : {0, 1, 2}) ends.push_back(cluster.submit(rank, tensors[i]->call(rank)));
  }
  const Status died = unavailable("rank 3 (host b, pid 1003) died", {3, "b"});
  cluster.host_of[3]->run([&] { cluster.host_of[3]->world->leave(3, died); });
  for (size_t i = 0; i < ends.size(); ++i) {
    const Status status = ends[i].get();
    EXPECT_EQ(status.code(), Code::unavailable);
    EXPECT_EQ(status.culprit(), (Culprit{3, "b"}));
    EXPECT_THAT(status.message(),
                HasSubstr("died during all_reduce #" + std::to_string(1 + i / 3) + ";"));
  }
}

TEST(CoalescingTest, AnAbsentRankIsNamedThoughWordOfOthersWaits) {
  ClusterOptions options;
  options.world.coalesce_us = 1'000'000;
  Cluster cluster({1, 1}, options);
  std::vector<std::unique_ptr<Tensors>> tensors;
  std::vector<std::future<Status>> ends;
  for (int i = 0; i < 3; ++i) {
    tensors.push_back(std::make_unique<Tensors>(cluster, all_reduce_of(10)));
    Call call = tensors.back()->call(1);
    call.timeout_ms = 100;
    ends.push_back(cluster.submit(1, call));
  }
  for (auto& end : ends) {
    const Status status = end.get();
    EXPECT_EQ(status.code(), Code::deadline_exceeded);
    EXPECT_THAT(status.message(), HasSubstr("not called by rank 0"));
  }
}

TEST(CoalescingTest, AStartOfWhatDoesNotFitEndsTheEpochByName) {
  for (const std::vector<uint64_t>& also :
       {std::vector<uint64_t>{1}, {2, 2}, {3}, {4}, {99}}) {  // 3: another dtype; 4: a broadcast.
    Cluster cluster({1, 1});
    std::vector<std::unique_ptr<Tensors>> tensors;
    std::vector<std::future<Status>> ends;
    const std::vector<Signature> asked = {{},
                                          all_reduce_of(1),
                                          all_reduce_of(1),
                                          all_reduce_of(1, Dtype::f64),
                                          {Collective::broadcast, Dtype::f32, Op::sum, 1}};
    for (const Signature& signature : asked) {
      tensors.push_back(std::make_unique<Tensors>(cluster, signature));
      ends.push_back(cluster.submit(1, tensors.back()->call(1)));
    }
    cluster.hosts[1]->run([] {});
    v1::ControlBatch batch;
    v1::Control& control = *batch.add_controls();
    control.set_op_seq(1);
    control.mutable_start()->set_local_strategy(pack_strategy(TUTTI_CENTRALIZED, 0));
    control.mutable_start()->set_global_strategy(pack_strategy(TUTTI_CENTRALIZED, 0));
    control.mutable_start()->set_slice_bytes(4096);
    control.mutable_start()->mutable_also()->Assign(also.begin(), also.end());
    auto handler = std::make_shared<LoopHandler>(cluster.hosts[0]->loop);
    auto link = cluster.hosts[0]->transport->connect(cluster.hosts[1]->address,
                                                     {"demo", 1, "a", "secret"}, handler);
    ASSERT_TRUE(link->send(control_frame(1, batch)).ok());
    for (auto& end : ends) {
      const Status status = end.get();
      EXPECT_EQ(status.code(), Code::data_loss);
      EXPECT_THAT(status.message(), HasSubstr("has not reached"));
    }
    link->close(aborted("the test is over"));
  }
}

}  // namespace
}  // namespace tutti

// Workers that stop and must not block the others, and budgets and changes that must not block
// anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/group/agreement.h"
#include "tests/worker/tensors.h"

namespace tutti {
namespace {

using testing::all_reduce_of;
using testing::Bytes;
using testing::Cluster;
using testing::ClusterHost;
using testing::ClusterOptions;
using ::testing::HasSubstr;
using testing::Tensors;

// Blocks a host's loop thread, like a stopped process.
class Stopped {
 public:
  explicit Stopped(ClusterHost& host) {
    host.loop.post([stays = end_.get_future().share()] { stays.wait(); });
  }
  ~Stopped() { end_.set_value(); }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;

 private:
  std::promise<void> end_;
};

// Three hosts, one of which is stopped after a first operation; the ranks of the others call.
class StopTest : public ::testing::TestWithParam<int> {
 protected:
  static constexpr Millis kTimeout{300};
  // By the rules 500 ms; far below the silence after which a link is given up.
  static constexpr Millis kMost{3000};

  Cluster cluster_{{1, 2, 1}};
};

TEST_P(StopTest, TheStoppedWorkerIsBlamedSoonAfterTheDeadlineAndNobodyElse) {
  Tensors(cluster_, all_reduce_of(100)).run_and_check();
  ClusterHost& stopped = *cluster_.hosts[static_cast<size_t>(GetParam())];
  Tensors tensors(cluster_, all_reduce_of(100));
  std::vector<std::future<Status>> ends;
  const TimePoint before = Clock::now();
  const Stopped stop(stopped);
  for (int rank = 0; rank < cluster_.size(); ++rank) {
    if (cluster_.host_of[rank] == &stopped) continue;
    Call call = tensors.call(rank);
    call.timeout_ms = kTimeout.count();
    ends.push_back(cluster_.submit(rank, call));
  }
  for (auto& end : ends) {
    const Status status = end.get();
    EXPECT_EQ(status.code(), Code::deadline_exceeded);
    EXPECT_EQ(status.culprit().host, stopped.host) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("the worker of host " + stopped.host));
  }
  EXPECT_LT(Clock::now() - before, kTimeout + kMost);
}

INSTANTIATE_TEST_SUITE_P(Hosts, StopTest, ::testing::Range(0, 3));

// A stopped worker reads nothing, so links keep borrowing the ranks' memory. When the epoch ends,
// its calls must end soon all the same, long before the silence of a link is noticed.
TEST(CutTest, AnEpochThatEndsDoesNotWaitForLinksThatAreStuck) {
  ClusterOptions options;
  options.transport = "tcp";
  options.links.silence_ms = 600'000;
  options.epoch.early_bytes = size_t{1} << 30;
  options.epoch.slice_bytes = size_t{4} << 20;
  options.engine.slices_in_flight = 16;  // More than sockets hold.
  Bytes tensor(size_t{64} << 20);
  Cluster cluster({1, 1}, options);
  Tensors(cluster, all_reduce_of(100)).run_and_check();
  Call call;
  call.signature = all_reduce_of(tensor.size() / sizeof(float));
  call.in = call.out = tensor.data();
  const Status cause = unavailable("host a was stopped", {0, "a"});
  const Stopped stop(*cluster.hosts[1]);
  std::future<Status> end = cluster.submit(0, call);
  cluster.hosts[0]->run([&] { cluster.hosts[0]->epoch->abort(cause); });
  ASSERT_EQ(end.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(end.get(), cause);
}

// The receiver of a large tensor has stopped while the sockets are full of it.
TEST(StoppedReceiverTest, IsBlamedSoonAfterTheDeadlineOfALargeTensor) {
  constexpr Millis kTimeout{1000};
  ClusterOptions options;
  options.transport = "tcp";
  Cluster cluster({1, 1}, options);
  Tensors tensors(cluster, all_reduce_of(32 << 20));
  std::vector<std::future<Status>> ends;
  const TimePoint before = Clock::now();
  for (int rank = 0; rank < cluster.size(); ++rank) {
    Call call = tensors.call(rank);
    call.timeout_ms = kTimeout.count();
    ends.push_back(cluster.submit(rank, call));
  }
  ASSERT_EQ(ends[0].wait_for(Millis(10)), std::future_status::timeout);
  {
    const Stopped stop(*cluster.hosts[1]);
    const Status status = ends[0].get();
    EXPECT_EQ(status.code(), Code::deadline_exceeded);
    EXPECT_EQ(status.culprit().host, cluster.hosts[1]->host) << status.to_string();
    EXPECT_LT(Clock::now() - before, kTimeout + Millis(3000));
  }
  EXPECT_FALSE(ends[1].get().ok());  // Until then the host that goes on uses its tensor.
}

// Two groups of the same two ranks, whose hosts start operations in opposite orders.
TEST(BudgetTest, TwoGroupsInOppositeOrdersDoNotWaitForEachOther) {
  ClusterOptions options;
  options.epoch.early_bytes = 100'000;
  options.epoch.slice_bytes = 64 * 1024;
  options.engine.ops_in_flight = 1;
  options.engine.slices_in_flight = 2;
  Cluster cluster({1, 1}, options);
  std::vector<uint32_t> groups;
  for (int nth = 0; nth < 2; ++nth)
    for (const int rank : {0, 1})
      cluster.host_of[rank]->run([&] {
        const auto group = cluster.host_of[rank]->epoch->subgroup(rank, {0, 1});
        ASSERT_TRUE(group.ok());
        if (rank == 0) groups.push_back(*group);
      });
  constexpr int kOperations = 4;
  std::vector<std::unique_ptr<Tensors>> tensors;
  for (int i = 0; i < 2 * kOperations; ++i)
    tensors.push_back(std::make_unique<Tensors>(cluster, all_reduce_of(500'000)));
  std::vector<std::future<Status>> ends;
  for (const int half : {0, 1})
    for (const int rank : {0, 1}) {
      const int group = half ^ rank;
      for (int i = 0; i < kOperations; ++i)
        ends.push_back(
            cluster.submit(rank, tensors[static_cast<size_t>(group * kOperations + i)]->call(rank),
                           groups[static_cast<size_t>(group)]));
      cluster.host_of[rank]->run([] {});  // It has started them before the other half comes.
    }
  for (auto& end : ends) {
    const Status status = end.get();
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  for (const auto& tensor : tensors) tensor->check();
}

// Frames of a group that this host makes later are kept.
TEST(BudgetTest, DataOfAGroupThatComesBeforeItIsMadeIsKept) {
  Cluster cluster({1, 1});
  Tensors tensors(cluster, all_reduce_of(1000));
  std::vector<std::future<Status>> ends;
  for (const int rank : {1, 0}) {
    Result<uint32_t> group = internal_error("");
    cluster.host_of[rank]->run([&] {
      group = cluster.host_of[rank]->epoch->subgroup(rank, {0, 1});
    });
    ends.push_back(cluster.submit(rank, tensors.call(rank), *group));
    cluster.host_of[rank]->run([] {});
  }
  for (auto& end : ends) EXPECT_TRUE(end.get().ok());
  tensors.check();
}

TEST(ChangeTest, StrategiesChangeInTheMiddleOfAThousandOperations) {
  Cluster cluster({1, 2, 1});
  const std::vector<Strategy> all = {
      {StrategyKind::ring, 0}, {StrategyKind::tree, 1}, {StrategyKind::centralized, 0}, {}};
  std::vector<std::unique_ptr<Tensors>> tensors;
  std::vector<std::future<Status>> ends;
  for (size_t i = 0; i < 1000; ++i) {
    if (i % 50 == 25)
      cluster.hosts[0]->run([&] {
        cluster.hosts[0]->epoch->set_strategy({{}, all[i / 50 % all.size()]});
      });
    tensors.push_back(std::make_unique<Tensors>(cluster, all_reduce_of(i % 300)));
    for (int rank = 0; rank < cluster.size(); ++rank)
      ends.push_back(cluster.submit(rank, tensors.back()->call(rank)));
  }
  for (auto& end : ends) {
    const Status status = end.get();
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  for (const auto& tensor : tensors) tensor->check();
}

uint64_t sent_frames(Cluster& cluster) {
  uint64_t sum = 0;
  for (const auto& host : cluster.hosts)
    host->run([&] { sum += host->epoch->stats().sent_frames; });
  return sum;
}

// While all ranks agree, hosts exchange data frames only.
TEST(SilenceTest, AThousandOperationsTakeTheirDataFramesAndFewMore) {
  const Strategies central{{StrategyKind::centralized, 0}, {StrategyKind::centralized, 0}};
  const Signature sum{Collective::all_reduce, Dtype::f32, Op::sum, 1000, 0, central};
  Cluster cluster({2, 2});
  Tensors(cluster, sum).run_and_check();
  const uint64_t before = sent_frames(cluster);
  constexpr uint64_t kOperations = 1000;
  std::vector<std::unique_ptr<Tensors>> tensors;
  std::vector<std::future<Status>> ends;
  for (uint64_t i = 0; i < kOperations; ++i) {
    tensors.push_back(std::make_unique<Tensors>(cluster, sum));
    for (int rank = 0; rank < cluster.size(); ++rank)
      ends.push_back(cluster.submit(rank, tensors.back()->call(rank)));
  }
  for (auto& end : ends) EXPECT_TRUE(end.get().ok());
  for (const auto& tensor : tensors) tensor->check();
  EXPECT_LT(sent_frames(cluster) - before, 2 * kOperations + kOperations / 2);  // One up, one down.
}

// A raw plan has a frame from each host to each other one; a chain one there and one back for each
// of its eight slices, between neighbours.
TEST(SilenceTest, ReproducibleOperationsTakeTheFramesOfTheirMovement) {
  const Strategies central{{StrategyKind::centralized, 0}, {StrategyKind::centralized, 0}};
  Cluster cluster({2, 1, 1, 1});
  constexpr uint64_t kOperations = 20;
  const auto frames_of = [&](uint64_t count) {
    Signature signature{Collective::all_reduce, Dtype::f32, Op::sum, count, 0, central};
    signature.reproducible = true;
    Tensors(cluster, signature).run_and_check();
    const uint64_t before = sent_frames(cluster);
    for (uint64_t i = 0; i < kOperations; ++i) Tensors(cluster, signature).run_and_check();
    return sent_frames(cluster) - before;
  };
  EXPECT_GE(frames_of(3000), 12 * kOperations);  // By a chain 6, and few to agree.
  EXPECT_GE(frames_of(1 << 18), 6 * 8 * kOperations);
}

TEST(ManyTest, OneThatDisagreesFailsAloneAmongTheQueued) {
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

TEST(ManyTest, ARankThatDiesFailsWhatItHadNotReachedEachByItsOwnName) {
  Cluster cluster({2, 2});
  Tensors(cluster, all_reduce_of(10)).run_and_check();
  std::vector<std::unique_ptr<Tensors>> tensors;
  std::vector<std::future<Status>> ends;
  for (int i = 0; i < 20; ++i) {
    tensors.push_back(std::make_unique<Tensors>(cluster, all_reduce_of(10)));
    for (const int rank : {0, 1, 2})
      ends.push_back(cluster.submit(rank, tensors[static_cast<size_t>(i)]->call(rank)));
  }
  const Status died = unavailable("rank 3 (host b, pid 1003) died", {3, "b"});
  cluster.host_of[3]->run([&] { cluster.host_of[3]->epoch->leave(3, died); });
  for (size_t i = 0; i < ends.size(); ++i) {
    const Status status = ends[i].get();
    EXPECT_EQ(status.code(), Code::unavailable);
    EXPECT_EQ(status.culprit(), (Culprit{3, "b"}));
    EXPECT_THAT(status.message(),
                HasSubstr("died during all_reduce #" + std::to_string(1 + i / 3) + ";"));
  }
}

TEST(ManyTest, EveryMixtureByValue) {
  for (const std::vector<int>& shape : {std::vector<int>{2, 2}, {1, 1, 1}, {3, 1}, {2}}) {
    Cluster cluster(shape);
    const Strategies ring{{StrategyKind::ring, 0}, {StrategyKind::ring, 0}};
    std::vector<Signature> mixed;
    for (uint64_t i = 0; i < 300; ++i) {
      const auto dtype = static_cast<Dtype>(i % 3 == 0 ? i % kDtypes : 0);
      const auto op = static_cast<Op>(i % 5 == 0 ? 2 : 0);
      mixed.push_back(
          {Collective::all_reduce, dtype, op, i * 13 % 500, 0, i % 7 == 0 ? ring : Strategies{}});
      if (i % 50 == 0) mixed.push_back(all_reduce_of(300'000));
      if (i % 40 == 0) mixed.push_back({Collective::all_gather, Dtype::f32, Op::sum, 100});
      if (i % 60 == 0) mixed.push_back({});  // A barrier.
    }
    std::vector<std::unique_ptr<Tensors>> tensors;
    std::vector<std::future<Status>> ends;
    for (const Signature& signature : mixed) {
      tensors.push_back(std::make_unique<Tensors>(cluster, signature));
      for (int rank = 0; rank < cluster.size(); ++rank)
        ends.push_back(cluster.submit(rank, tensors.back()->call(rank)));
    }
    for (auto& end : ends) EXPECT_TRUE(end.get().ok());
    for (const auto& tensor : tensors) tensor->check();
  }
}

}  // namespace
}  // namespace tutti

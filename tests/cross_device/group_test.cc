// Reductions and copies in a group with one process a rank, over real agents and workers.
#include <chrono>
#include <functional>
#include <optional>
#include <random>

#include "tests/cross_device/values.h"
#include "tests/process/board_fixture.h"
#include "tests/support/scarce_memory.h"
#include "tests/support/test_mesh.h"

namespace tutti::cross_device {
namespace {

using tutti::testing::check;
using tutti::testing::RankContext;

class GroupTest : public tutti::testing::TwoHostsTest {};

HierarchicalCopyAllReduce hierarchical_copy(const Group& group,
                                            std::optional<int64_t> num_packs = 1) {
  return *HierarchicalCopyAllReduce::create(num_packs, group.get());
}
ReductionToOneDevice to_one(const Group& group, const std::string& device = "") {
  return *ReductionToOneDevice::create(device, group.get());
}

// This rank's only component, on /device:CPU:0.
PerReplica one(Tensor tensor) { return PerReplica({std::move(tensor)}); }
PerReplica scalar(double number, Dtype dtype = Dtype::f32) {
  return one(tensor_of(dtype, {}, {number}));
}
const Destinations kEverywhere(std::vector<DeviceName>{{}});

template <class T>
T checked(Result<T> result) {
  check(result.ok(), result.status().to_string());
  return *std::move(result);
}

void check_failure(const Status& status, Code code, const std::string& part) {
  const auto failed = fails(status, code, part);
  check(failed, failed.message() + std::string(" does not say ") + part);
}

void check_numbers(const Mirrored& result, const Numbers& expected, const std::string& what) {
  check(!result.components.empty(), what + ": no component");
  const auto same = all_have(result, expected);
  check(same, what + ": " + same.message());
}

void check_sum(const CrossDeviceOps& ops, double number, double expected) {
  const auto result = ops.reduce(ReduceOp::sum, scalar(number), kEverywhere);
  check_numbers(checked(result), {expected}, "a sum");
}

TEST_F(GroupTest, BatchesOfEveryPacking) {
  const auto body = [](const RankContext& context) {
    const Group group = context.join();
    const double own = std::ldexp(1, context.rank);
    std::vector<CrossDeviceOps::Pair> pairs;
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::f64})
      for (const int64_t size : {1, 7, 0, 1000})
        pairs.emplace_back(one(tensor_of(dtype, {size}, Numbers(static_cast<size_t>(size), own))),
                           kEverywhere);
    for (const std::optional<int64_t> num_packs : {std::optional<int64_t>(1), {8}, {2000}, {}})
      for (const int64_t bytes_per_pack : {0, 100})
        for (const auto implementation : {Implementation::automatic, Implementation::ring}) {
          const CommunicationOptions options{bytes_per_pack, {}, implementation};
          const auto ops = hierarchical_copy(group, num_packs);
          const auto sums = checked(ops.batch_reduce(ReduceOp::sum, pairs, options));
          const auto means = checked(ops.batch_reduce(ReduceOp::mean, pairs, options));
          for (size_t i = 0; i < pairs.size(); ++i) {
            const size_t size = dense(pairs[i].first.components[0].value).count();
            check_numbers(sums[i], Numbers(size, 15), "the sum");
            check_numbers(means[i], Numbers(size, 3.75), "the mean");
          }
        }
  };
  EXPECT_EQ(run({2, 2}, body), "");
  EXPECT_EQ(run({4}, body), "");
}

TEST_F(GroupTest, OddNumbersOfRanks) {
  const auto body = [](const RankContext& context) {
    const Group group = context.join();
    const PerReplica own = scalar(std::ldexp(1, context.rank), Dtype::f64);
    for (const CrossDeviceOps& ops :
         {CrossDeviceOps(hierarchical_copy(group)), CrossDeviceOps(to_one(group))}) {
      check_numbers(checked(ops.reduce(ReduceOp::sum, own, kEverywhere)), {7}, "the sum");
      check_numbers(checked(ops.reduce(ReduceOp::mean, own, kEverywhere)), {7.0 / 3}, "the mean");
    }
  };
  EXPECT_EQ(run({2, 1}, body), "");
  EXPECT_EQ(run({3}, body), "");
}

// What hierarchical copy makes of 1e8, 1, -1e8 and 1.
tutti::testing::Trainer::Body expects_order(double expected) {
  return [expected](const RankContext& context) {
    const Group group = context.join();
    constexpr double kNumbers[] = {1e8, 1, -1e8, 1};
    check_sum(hierarchical_copy(group), kNumbers[context.rank], expected);
  };
}

TEST_F(GroupTest, OrderIsThatOfTheHosts) {
  EXPECT_EQ(run({2, 2}, expects_order(0)), "");  // (a + b) + (c + d)
  EXPECT_EQ(run({3, 1}, expects_order(1)), "");  // ((a + b) + c) + d
  EXPECT_EQ(run({1, 3}, expects_order(0)), "");  // a + ((b + c) + d)
}

TEST_F(GroupTest, DestinationsOnSomeRanks) {
  EXPECT_EQ(run({2, 2},
                [](const RankContext& context) {
                  const Group group = context.join();
                  const std::vector<std::vector<int>> choices = {{2}, {1, 3}, {0, 1, 2, 3}};
                  for (const std::vector<int>& ranks : choices) {
                    std::vector<DeviceName> devices;
                    for (const int rank : ranks) devices.push_back({.job = "worker", .task = rank});
                    const bool here = std::ranges::count(ranks, context.rank) != 0;
                    for (const CrossDeviceOps& ops :
                         {CrossDeviceOps(hierarchical_copy(group)), CrossDeviceOps(to_one(group)),
                          CrossDeviceOps(to_one(group, "/task:1/cpu:0"))}) {
                      const auto result = checked(
                          ops.reduce(ReduceOp::mean, scalar(context.rank), Destinations(devices)));
                      check(result.components.size() == (here ? 1u : 0u), "a component");
                      if (here) check_numbers(result, {1.5}, "the mean");
                    }
                  }
                }),
            "");
}

TEST_F(GroupTest, SeveralComponentsOnSomeRanks) {
  EXPECT_EQ(run({2, 1},
                [](const RankContext& context) {
                  const Group group = context.join();
                  std::vector<Value> values;  // Rank 0: 1; rank 1: 2 and 3; rank 2: 4, 5 and 6.
                  for (int i = 0; i <= context.rank; ++i) {
                    const int number = context.rank * (context.rank + 1) / 2 + i + 1;
                    values.emplace_back(tensor_of(Dtype::f16, {2}, Numbers(2, number)));
                  }
                  const PerReplica own(std::move(values));
                  for (const CrossDeviceOps& ops :
                       {CrossDeviceOps(hierarchical_copy(group)), CrossDeviceOps(to_one(group))}) {
                    const auto sum = checked(ops.reduce(ReduceOp::sum, own, Destinations(own)));
                    check(sum.components.size() == own.components.size(), "copies");
                    check_numbers(sum, {21, 21}, "the sum");
                    const auto mean = checked(ops.reduce(ReduceOp::mean, own, kEverywhere));
                    check_numbers(mean, {3.5, 3.5}, "the mean");
                  }
                }),
            "");
}

TEST_F(GroupTest, Integers) {
  EXPECT_EQ(run({2},
                [](const RankContext& context) {
                  const Group group = context.join();
                  const PerReplica own = scalar(context.rank == 0 ? 2147483647 : 1, Dtype::i32);
                  const auto sum = hierarchical_copy(group).reduce(ReduceOp::sum, own, kEverywhere);
                  check_numbers(checked(sum), {-2147483648.0}, "the sum");
                  const auto mean =
                      hierarchical_copy(group).reduce(ReduceOp::mean, own, kEverywhere);
                  check_failure(mean.status(), Code::invalid_argument, "MEAN needs");
                  check_sum(hierarchical_copy(group), 2, 4);
                }),
            "");
}

// Every rank's result of a call about which the ranks disagree; then one that works.
void check_disagreement(const Group& group, const CrossDeviceOps& ops, const PerReplica& own,
                        ReduceOp op, const std::vector<std::string>& parts) {
  const Status status = ops.reduce(op, own, kEverywhere).status();
  for (const std::string& part : parts) check_failure(status, Code::invalid_argument, part);
  check_sum(to_one(group), 1, 3);
}

TEST_F(GroupTest, DisagreementIsReportedToAllRanks) {
  EXPECT_EQ(
      run({2, 1},
          [](const RankContext& context) {
            const Group group = context.join();
            const bool odd = context.rank == 1;
            const auto ops = hierarchical_copy(group);
            check_disagreement(group, ops, one(floats(odd ? Numbers{1, 2, 3} : Numbers{1, 2})),
                               ReduceOp::sum, {"f32[2]", "rank 1 has", "f32[3]"});
            check_disagreement(group, ops,
                               one(tensor_of(Dtype::f32, odd ? Shape{1, 2} : Shape{2, 1}, {1, 2})),
                               ReduceOp::sum, {"[2,1]", "[1,2]"});
            check_disagreement(group, ops, scalar(1, odd ? Dtype::f16 : Dtype::f32), ReduceOp::sum,
                               {"f32[]", "f16[]"});
            check_disagreement(group, ops, scalar(1), odd ? ReduceOp::mean : ReduceOp::sum,
                               {"SUM of", "MEAN of"});
            check_disagreement(group, hierarchical_copy(group, odd ? 2 : 1), scalar(1),
                               ReduceOp::sum, {"'num_packs 1'", "'num_packs 2'"});
          }),
      "");
}

TEST_F(GroupTest, DisagreementAboutTheCall) {
  EXPECT_EQ(run({2},
                [](const RankContext& context) {
                  const Group group = context.join();
                  const auto ops = hierarchical_copy(group);
                  const PerReplica own = scalar(1);
                  Status status;
                  if (context.rank == 0)
                    status = ops.broadcast(own.components[0].value, kEverywhere).status();
                  else
                    status = ops.batch_reduce(ReduceOp::sum, {{own, kEverywhere}}).status();
                  check_failure(status, Code::invalid_argument, "'broadcast of f32[]");
                  check_failure(status, Code::invalid_argument, "'batch_reduce by Hierarch");
                  check_sum(ops, 1, 2);
                }),
            "");
}

TEST_F(GroupTest, ARefusalOfOneRankEndsTheCallOfAll) {
  EXPECT_EQ(run({2, 1},
                [](const RankContext& context) {
                  const Group group = context.join();
                  const auto ops = hierarchical_copy(group);
                  const int task = context.rank == 2 ? 7 : 0;
                  const Destinations wrong(std::vector<DeviceName>{{.task = task}});
                  const Status status = ops.reduce(ReduceOp::sum, scalar(1), wrong).status();
                  check_failure(status, Code::invalid_argument,
                                "/task:7/device:CPU:0 is on no rank");
                  check_failure(status, Code::invalid_argument,
                                context.rank == 2 ? "the group has 3" : "rank 2 refused");
                  check_sum(ops, 1, 3);
                  PerReplica foreign = scalar(1);
                  foreign.components[0].device.task = 0;
                  const Status other = ops.reduce(ReduceOp::sum, foreign, kEverywhere).status();
                  check_failure(other, Code::invalid_argument,
                                "this is rank " + std::to_string(std::max(context.rank, 1)));
                  check_sum(ops, 1, 3);
                }),
            "");
}

void check_timeout(const CrossDeviceOps& ops) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const CommunicationOptions second{.timeout_seconds = 1};
  const Status status = ops.reduce(ReduceOp::sum, scalar(1), kEverywhere, second).status();
  check_failure(status, Code::deadline_exceeded, "rank 1");
  const std::chrono::duration<double> waited = Clock::now() - begin;
  check(waited.count() >= 0.9 && waited.count() < 20, "the time");
}

TEST_F(GroupTest, AnAbsentRankEndsTheCallAtItsTimeout) {
  const tutti::testing::SharedCounters failed;
  EXPECT_EQ(run({2, 1},
                [&](const RankContext& context) {
                  const Group group = context.join();
                  const auto ops = hierarchical_copy(group);
                  check_sum(ops, 1, 3);
                  if (context.rank == 1) {  // It comes late.
                    failed.wait_for(0, 2);
                    const Status late = ops.reduce(ReduceOp::sum, scalar(1), kEverywhere).status();
                    check_failure(late, Code::deadline_exceeded, "rank 1");
                  } else {
                    check_timeout(ops);
                    failed[0].fetch_add(1);
                  }
                  check_sum(ops, 1, 3);
                }),
            "");
}

const IndexedSlices& sparse(const Mirrored& result) {
  return std::get<IndexedSlices>(result.components[0].value);
}

TEST_F(GroupTest, SparseRowsOfDifferentLengths) {
  EXPECT_EQ(run({2, 1},
                [](const RankContext& context) {
                  const Group group = context.join();
                  const std::vector<IndexedSlices> parts = {
                      slices({1}, {1, 2}, 2, Shape{5, 2}), slices({}, {}, 2, Shape{5, 2}),
                      slices({1, 3}, {3, 4, 5, 6}, 2, Shape{5, 2})};
                  const auto ops = hierarchical_copy(group);
                  const PerReplica own({parts[static_cast<size_t>(context.rank)]});
                  const auto sum = checked(ops.reduce(ReduceOp::sum, own, kEverywhere));
                  check(numbers_of(sparse(sum).indices) == Numbers{1, 1, 3}, "indices");
                  check(numbers_of(sparse(sum).values) == Numbers{1, 2, 3, 4, 5, 6}, "values");
                  check(sparse(sum).dense_shape == Shape{5, 2}, "dense_shape");
                  const auto both = checked(ops.batch_reduce(
                      ReduceOp::mean, {{scalar(3), kEverywhere}, {own, kEverywhere}}));
                  check_numbers(both[0], {3}, "the mean");
                  const float third = 1.0f / 3;
                  check(numbers_of(sparse(both[1]).values)[0] == third, "the mean of rows");
                  const PerReplica none({parts[1]});
                  const auto empty = checked(ops.reduce(ReduceOp::mean, none, kEverywhere));
                  check(sparse(empty).values.shape() == Shape{0, 2}, "no rows");
                  const Destinations last(std::vector<DeviceName>{{.task = 2}});
                  const auto there = checked(ops.reduce(ReduceOp::sum, own, last));
                  check(there.components.size() == (context.rank == 2 ? 1u : 0u), "one rank");
                }),
            "");
}

// Rank 1 makes the call with less memory than it takes. All fail, and the next call works.
void check_out_of_memory(const CrossDeviceOps& ops, int rank, const std::function<Status()>& call) {
  std::optional<tutti::testing::SmallMemory> small;
  if (rank == 1) small.emplace(100'000);
  const Status status = call();
  small.reset();
  check_failure(status, Code::resource_exhausted,
                rank == 1 ? "this process is out of memory"
                          : "rank 1 refused the call: this process is out of memory");
  check_sum(ops, 1, 3);
}

void check_out_of_memory(const CrossDeviceOps& ops, int rank, const Value& value) {
  const PerReplica own({value});
  const PerReplica several(std::vector<Value>(static_cast<size_t>(rank) + 1, value));
  const Destinations last(std::vector<DeviceName>{{.task = 2}});
  for (const PerReplica* one : {&own, &several})
    for (const Destinations* where : {&kEverywhere, &last}) {
      check_out_of_memory(ops, rank,
                          [&] { return ops.reduce(ReduceOp::sum, *one, *where).status(); });
      check_out_of_memory(ops, rank, [&] {
        return ops.batch_reduce(ReduceOp::mean, {{scalar(1), *where}, {*one, *where}}).status();
      });
    }
}

TEST_F(GroupTest, ARankWithoutMemoryLeavesAllInStep) {
  EXPECT_EQ(run({2, 1},
                [](const RankContext& context) {
                  const Group group = context.join();
                  const Numbers ones(60'000, 1);
                  const Tensor tensor = floats(ones);
                  for (const CrossDeviceOps& ops :
                       {CrossDeviceOps(hierarchical_copy(group)), CrossDeviceOps(to_one(group))}) {
                    for (const Dtype dtype : {Dtype::f32, Dtype::f16})
                      check_out_of_memory(ops, context.rank, tensor_of(dtype, {60'000}, ones));
                    const Value rows =
                        context.rank == 1 ? slices({}, {}, 60'000) : slices({0}, ones, 60'000);
                    check_out_of_memory(ops, context.rank, rows);
                    check_out_of_memory(ops, context.rank, [&] {
                      return ops.broadcast(tensor, kEverywhere).status();
                    });
                  }
                }),
            "");
}

TEST_F(GroupTest, SparseAndDenseDisagree) {
  EXPECT_EQ(run({2},
                [](const RankContext& context) {
                  const Group group = context.join();
                  const Value own = context.rank == 0 ? Value(slices({0}, {1}, 1, Shape{1, 1}))
                                                      : Value(tensor_of(Dtype::f32, {1, 1}, {1}));
                  const Status status = hierarchical_copy(group)
                                            .reduce(ReduceOp::sum, PerReplica({own}), kEverywhere)
                                            .status();
                  check_failure(status, Code::invalid_argument, "sparse f32[rows,1]");
                }),
            "");
}

TEST_F(GroupTest, Broadcast) {
  EXPECT_EQ(run({1, 2},
                [](const RankContext& context) {
                  const Group group = context.join();
                  const auto ops = to_one(group);
                  const Tensor own = floats({static_cast<double>(context.rank), 5});
                  const Destinations two(devices({"CPU:0", "CPU:1"}));
                  const auto copies = checked(ops.broadcast(own, two, 1));
                  check(copies.components.size() == 2, "two copies");
                  check_numbers(copies, {1, 5}, "the copy");
                  const Destinations last(std::vector<DeviceName>{{.task = 2}});
                  const auto there = checked(ops.broadcast(own, last));
                  if (context.rank == 2) check_numbers(there, {0, 5}, "the copy");
                  check(there.components.size() == (context.rank == 2 ? 1u : 0u), "one rank");
                  const auto rows = checked(ops.broadcast(
                      slices({context.rank}, {1.0 * context.rank, 2}, 2), kEverywhere, 2));
                  check(numbers_of(sparse(rows).indices) == Numbers{2}, "the indices");
                  check(numbers_of(sparse(rows).values) == Numbers{2, 2}, "the rows");
                  const Status wrong = ops.broadcast(own, kEverywhere, 3).status();
                  check_failure(wrong, Code::invalid_argument, "root 3");
                  const Status differ = ops.broadcast(own, kEverywhere, context.rank).status();
                  check_failure(differ, Code::invalid_argument, "from rank 1");
                }),
            "");
}

TEST_F(GroupTest, ManyCallsInARow) {
  EXPECT_EQ(run({2, 2},
                [](const RankContext& context) {
                  const Group group = context.join();
                  const auto ops = hierarchical_copy(group, 3);
                  std::mt19937 random(5);  // The same on all ranks.
                  for (int call = 0; call < 60; ++call) {
                    std::vector<CrossDeviceOps::Pair> pairs;
                    std::vector<Numbers> expected;
                    for (unsigned i = random() % 5; i > 0; --i) {
                      const size_t size = random() % 3000;
                      Numbers own(size);
                      Numbers sum(size);
                      for (size_t at = 0; at < size; ++at) {
                        own[at] = static_cast<double>((at + call) % 50 + context.rank);
                        sum[at] = static_cast<double>((at + call) % 50 * 4 + 6);
                      }
                      pairs.emplace_back(one(floats(own)), kEverywhere);
                      expected.push_back(sum);
                    }
                    const auto sums = checked(ops.batch_reduce(ReduceOp::sum, pairs));
                    for (size_t i = 0; i < sums.size(); ++i)
                      check_numbers(sums[i], expected[i], "call " + std::to_string(call));
                  }
                }),
            "");
}

constexpr size_t kRandomCount = 10'001;

// The random values of a rank, whose sums are rounded.
Tensor random_tensor(int rank) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::normal_distribution<double> normal;
  Numbers numbers(kRandomCount);
  for (double& number : numbers) number = normal(random) * 1e3;
  return floats(numbers);
}

// What one process makes of the values of all ranks, with the devices of two hosts.
Tensor mean_in_one_process(int ranks, int on_first_host) {
  PerReplica value;
  for (int rank = 0; rank < ranks; ++rank)
    value.components.push_back(
        {random_tensor(rank), {.task = rank < on_first_host ? 0 : 1, .index = rank}});
  const auto ops = *HierarchicalCopyAllReduce::create();
  return dense(checked(ops.reduce(ReduceOp::mean, value, Destinations(value))).components[0].value);
}

bool same_bits(const Tensor& a, const std::byte* b) {
  return std::memcmp(a.data(), b, a.bytes()) == 0;
}

void check_same_on_all_ranks(const Group& group, const Tensor& tensor) {
  const auto ranks = static_cast<size_t>(group.world_size());
  std::vector<std::byte> all(tensor.bytes() * ranks);
  Error::check(tutti_all_gather(group.get(), tensor.data(), all.data(), tensor.bytes(), TUTTI_U8,
                                nullptr, nullptr));
  for (size_t rank = 0; rank < ranks; ++rank)
    check(same_bits(tensor, all.data() + rank * tensor.bytes()), "the bits of all ranks");
}

TEST_F(GroupTest, BitsAreThoseOfOneProcessAndOfAllRanks) {
  for (const int on_first_host : {2, 3})
    EXPECT_EQ(run({on_first_host, 4 - on_first_host},
                  [&](const RankContext& context) {
                    const Group group = context.join();
                    const auto mean = [&](Implementation implementation) {
                      return dense(checked(hierarchical_copy(group, 2).reduce(
                                               ReduceOp::mean, one(random_tensor(context.rank)),
                                               kEverywhere, {.implementation = implementation}))
                                       .components[0]
                                       .value);
                    };
                    const Tensor own = mean(Implementation::automatic);
                    check(same_bits(own, mean_in_one_process(4, on_first_host).data()),
                          "the bits of one process");
                    check_same_on_all_ranks(group, own);
                    check_same_on_all_ranks(group, mean(Implementation::ring));
                  }),
              "");
}

}  // namespace
}  // namespace tutti::cross_device

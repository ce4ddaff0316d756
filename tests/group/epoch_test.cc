// Several hosts as threads: the values of every collective, over in-process and gRPC links.
#include <gtest/gtest.h>

#include <bit>

#include "tests/worker/tensors.h"

namespace tutti {
namespace {

using testing::Bytes;
using testing::Cluster;
using testing::ClusterOptions;
using testing::kCentral;
using testing::kRing;
using testing::Tensors;

constexpr Strategy tree(uint32_t arity) { return {StrategyKind::tree, arity}; }

const std::vector<Strategy> kStrategies = {{}, kCentral, tree(1), tree(2), tree(5), kRing};

struct Shape {
  std::vector<int> ranks_per_host;
  std::string transport = "local";
};
void PrintTo(const Shape& shape, std::ostream* out) {
  std::string name = shape.transport;
  for (const int ranks : shape.ranks_per_host) name += "_" + std::to_string(ranks);
  std::ranges::replace(name, '+', '_');
  *out << name;
}

class EpochTest : public ::testing::TestWithParam<Shape> {
 protected:
  static ClusterOptions options() {
    ClusterOptions options;
    const std::string& kind = GetParam().transport;
    options.transport = kind.substr(0, kind.find('+'));
    options.links.tls = kind.ends_with("+tls");
    options.epoch.slice_bytes = 64 * 1024;
    return options;
  }
  // Whether whole numbers divided by the world's size are exact in the floating type, or the test
  // rounds, too.
  bool exact_mean(Dtype type) const {
    return size_of(type) > 2 || std::has_single_bit(static_cast<unsigned>(cluster_.size()));
  }
  Cluster cluster_{GetParam().ranks_per_host, options()};
};

TEST_P(EpochTest, EveryCollectiveUnderEveryPairOfStrategies) {
  uint32_t root = 0;
  for (const Collective collective : kEveryCollective)
    for (const Strategy& local : kStrategies)
      for (const Strategy& global : kStrategies)
        for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{3}, uint64_t{1000}}) {
          root = has_root(collective) ? (root + 1) % static_cast<uint32_t>(cluster_.size()) : 0;
          Tensors tensors(cluster_,
                          {collective, Dtype::f32, Op::sum, count, root, {local, global}});
          tensors.run_and_check();
          if (HasFatalFailure()) return;
        }
}

TEST_P(EpochTest, EveryDtypeAndOp) {
  for (int dtype = 0; dtype < kDtypes; ++dtype)
    for (int op = 0; op < kOps; ++op) {
      const auto type = static_cast<Dtype>(dtype);
      if (!applies_to(static_cast<Op>(op), type)) continue;
      if (static_cast<Op>(op) == Op::mean && !exact_mean(type)) continue;
      const bool overflows = type == Dtype::i8 || type == Dtype::u8;
      if (static_cast<Op>(op) == Op::prod && overflows) continue;
      for (const Strategy& global : {kRing, tree(2)})
        for (const Collective collective :
             {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
          Tensors tensors(cluster_,
                          {collective, type, static_cast<Op>(op), 777, 0, {kCentral, global}});
          tensors.run_and_check();
          if (HasFatalFailure()) return;
        }
    }
}

TEST_P(EpochTest, ManySlicesInPlace) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16})
    for (const Strategy& strategy : kStrategies) {
      Tensors tensors(cluster_,
                      {Collective::all_reduce, dtype, Op::sum, 300'001, 0, {strategy, strategy}},
                      true);
      tensors.run_and_check();
      if (HasFatalFailure()) return;
    }
}

TEST_P(EpochTest, ManySlicesOfBlocksAndRootedCollectives) {
  const auto last = static_cast<uint32_t>(cluster_.size() - 1);
  for (const Collective collective : kEveryCollective) {
    Tensors tensors(
        cluster_,
        {collective, Dtype::f64, Op::sum, 50'001, has_root(collective) ? last : 0, {kRing, kRing}});
    tensors.run_and_check();
    if (HasFatalFailure()) return;
  }
}

TEST_P(EpochTest, ManyOperationsInFlightEndInOrderAndRight) {
  constexpr int kOperations = 64;
  std::vector<std::unique_ptr<Tensors>> tensors;
  std::vector<std::future<Status>> futures;
  for (int i = 0; i < kOperations; ++i) {
    const auto collective = kEveryCollective[static_cast<size_t>(i) % kEveryCollective.size()];
    const Strategy& strategy = kStrategies[static_cast<size_t>(i / 5) % kStrategies.size()];
    tensors.push_back(
        std::make_unique<Tensors>(cluster_, Signature{collective,
                                                      Dtype::i32,
                                                      Op::sum,
                                                      static_cast<uint64_t>(i * 997 % 30'000),
                                                      0,
                                                      {strategy, strategy}}));
    for (int rank = 0; rank < cluster_.size(); ++rank)
      futures.push_back(cluster_.submit(rank, tensors.back()->call(rank)));
  }
  for (auto& future : futures) ASSERT_TRUE(future.get().ok());
  for (auto& tensor : tensors) tensor->check();
}

TEST_P(EpochTest, SixteenBitPartialSumsKeepTheirPrecision) {
  Tensors tensors(cluster_,
                  {Collective::all_reduce, Dtype::bf16, Op::sum, 5, 0, {tree(1), tree(1)}});
  for (int rank = 0; rank < cluster_.size(); ++rank)
    for (size_t i = 0; i < 5; ++i)
      testing::put(tensors.input(rank), Dtype::bf16, i, rank == 0 ? 256 : 1);
  for (const Status& status : cluster_.all([&](int rank) { return tensors.call(rank); }))
    ASSERT_TRUE(status.ok()) << status.to_string();
  // 256 + 1 rounds back to 256 in bf16, however often; the sum of all, rounded once, is 258 (n = 3)
  // or more.
  const double sum = 256 + cluster_.size() - 1;
  const double rounded = std::nearbyint(sum / 2) * 2;
  for (int rank = 0; rank < cluster_.size(); ++rank)
    EXPECT_EQ(testing::get(tensors.result(rank), Dtype::bf16, 4), rounded);
}

TEST_P(EpochTest, FloatSumsAreTheSameBitsOnEveryRankAndInEveryRun) {
  for (const Strategy& strategy : kStrategies) {
    std::vector<Bytes> first;
    for (int run = 0; run < 2; ++run) {
      Tensors tensors(
          cluster_,
          {Collective::all_reduce, Dtype::f32, Op::mean, 40'000, 0, {strategy, strategy}});
      for (int rank = 0; rank < cluster_.size(); ++rank)
        for (size_t i = 0; i < 40'000; ++i)
          testing::put(tensors.input(rank), Dtype::f32, i,
                       std::sin(1.0 + rank * 40'000.0 + i) * std::exp(rank));
      for (const Status& status : cluster_.all([&](int rank) { return tensors.call(rank); }))
        ASSERT_TRUE(status.ok()) << status.to_string();
      for (int rank = 0; rank < cluster_.size(); ++rank) {
        if (first.empty()) first.push_back(tensors.result(0));
        ASSERT_EQ(tensors.result(rank), first[0])
            << "strategy " << to_string(strategy) << " run " << run;
      }
    }
  }
}

TEST_P(EpochTest, SubgroupsRunBesideTheWhole) {
  const auto size = static_cast<uint32_t>(std::min(2, cluster_.size()));
  std::vector<uint32_t> ranks = {static_cast<uint32_t>(cluster_.size() - 1), 0};
  ranks.resize(size);
  std::vector<Bytes> tensors(size, Bytes(4000));
  std::vector<std::future<Status>> futures;
  for (uint32_t place = 0; place < size; ++place) {
    for (size_t i = 0; i < 1000; ++i)
      testing::put(tensors[place], Dtype::i32, i, static_cast<double>(i) + place);
    const auto rank = static_cast<int>(ranks[place]);
    Result<uint32_t> group = internal_error("");
    cluster_.host_of[rank]->run(
        [&] { group = cluster_.host_of[rank]->epoch->subgroup(rank, ranks); });
    ASSERT_TRUE(group.ok());
    Call call;
    call.signature = {Collective::all_reduce, Dtype::i32, Op::sum, 1000, 0, {}};
    call.in = call.out = tensors[place].data();
    futures.push_back(cluster_.submit(rank, call, *group));
  }
  Tensors whole(cluster_, {Collective::all_reduce, Dtype::f32, Op::sum, 1000, 0, {}});
  whole.run_and_check();
  for (auto& future : futures) ASSERT_TRUE(future.get().ok());
  for (const Bytes& tensor : tensors)
    for (size_t i = 0; i < 1000; ++i)
      ASSERT_EQ(testing::get(tensor, Dtype::i32, i), size == 1 ? i : 2.0 * i + 1);
}

INSTANTIATE_TEST_SUITE_P(Shapes, EpochTest,
                         ::testing::Values(Shape{{1}}, Shape{{2}}, Shape{{4}}, Shape{{1, 1}},
                                           Shape{{2, 2}}, Shape{{3, 1}}, Shape{{1, 1, 1}},
                                           Shape{{2, 1, 3}}, Shape{{5, 4}}, Shape{{2, 2}, "grpc"},
                                           Shape{{1, 2, 1}, "grpc"}, Shape{{2, 2}, "tcp"},
                                           Shape{{1, 2, 1}, "tcp"}, Shape{{1, 1, 1, 1}, "tcp"},
                                           Shape{{1, 2, 1}, "tcp+tls"}, Shape{{2, 2}, "grpc+tls"}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace tutti

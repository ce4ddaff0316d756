// Reproducible reductions over hosts as threads: the same bits in every layout, by every strategy.
#include <gtest/gtest.h>

#include <set>

#include "daemon/group/control.h"
#include "daemon/group/movement.h"
#include "tests/support/rank_order.h"
#include "tests/worker/cluster.h"

namespace tutti {
namespace {

using testing::Bytes;
using testing::Cluster;
using testing::ClusterOptions;

const std::vector<Strategy> kMovements = {{},
                                          {StrategyKind::centralized},
                                          {StrategyKind::tree, 1},
                                          {StrategyKind::tree, 2},
                                          {StrategyKind::ring}};

// Each host's index, by rank.
struct Layout : std::vector<int> {
  using std::vector<int>::vector;
};
void PrintTo(const Layout& layout, std::ostream* out) {
  for (const int host : layout) *out << host;
}

class ReproducibleTest : public ::testing::TestWithParam<Layout> {
 protected:
  static ClusterOptions options() {
    ClusterOptions options;
    options.epoch.slice_bytes = 16 * 1024;
    options.dealt = GetParam();
    return options;
  }
  static std::vector<int> hosts() {
    std::vector<int> ranks;
    for (const int host : GetParam()) {
      ranks.resize(std::max<size_t>(ranks.size(), host + 1));
      ++ranks[host];
    }
    return ranks;
  }

  int ranks() const { return static_cast<int>(GetParam().size()); }

  // Each rank's result; those without one have none.
  std::vector<Bytes> results_of(const Signature& signature, std::vector<Bytes> inputs,
                                bool in_place) {
    const size_t block = signature.count * size_of(signature.dtype);
    std::vector<Bytes> outputs(inputs.size(), Bytes(in_place ? 0 : block));
    const auto has_result = [&](int rank) {
      return signature.collective != Collective::reduce || rank == static_cast<int>(signature.root);
    };
    const std::vector<Status> ends = cluster_.all([&](int rank) {
      Call call;
      call.signature = signature;
      call.in = inputs[rank].data();
      const size_t own = signature.collective == Collective::reduce_scatter ? rank * block : 0;
      if (has_result(rank)) call.out = in_place ? inputs[rank].data() + own : outputs[rank].data();
      return call;
    });
    for (int rank = 0; rank < ranks(); ++rank) {
      EXPECT_TRUE(ends[rank].ok()) << ends[rank].to_string();
      const size_t own = signature.collective == Collective::reduce_scatter ? rank * block : 0;
      if (in_place) outputs[rank].assign(&inputs[rank][own], &inputs[rank][own] + block);
      if (!has_result(rank)) outputs[rank].clear();
    }
    return outputs;
  }

  // The operation under every strategy, in place and not, against the sum by rank.
  void check(Signature signature) {
    const bool scatters = signature.collective == Collective::reduce_scatter;
    const size_t count = signature.count * (scatters ? ranks() : 1);
    std::vector<Bytes> inputs;
    for (int rank = 0; rank < ranks(); ++rank)
      inputs.push_back(testing::wild_values(signature.dtype, count, seed_ += 17));
    const Bytes all = testing::reduced_in_rank_order(signature.dtype, signature.op, inputs);
    signature.reproducible = true;
    for (const Strategy& strategy : kMovements)
      for (const bool in_place : {false, true}) {
        signature.strategies = {strategy, strategy};
        const std::vector<Bytes> results = results_of(signature, inputs, in_place);
        for (int rank = 0; rank < ranks(); ++rank) {
          const size_t bytes = results[rank].size();
          const std::byte* expected = all.data() + (scatters ? rank * bytes : 0);
          ASSERT_EQ(std::memcmp(results[rank].data(), expected, bytes), 0)
              << to_string(signature) << ", rank " << rank << (in_place ? ", in place" : "");
        }
      }
  }

  Cluster cluster_{hosts(), options()};
  unsigned seed_ = 1;
};

constexpr Collective kThatReduce[] = {Collective::all_reduce, Collective::reduce,
                                      Collective::reduce_scatter};

TEST_P(ReproducibleTest, EveryFloatOpAndCollective) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16})
    for (const Op op : {Op::sum, Op::mean, Op::prod, Op::min, Op::max})
      for (const Collective collective : kThatReduce) {
        const uint32_t root = collective == Collective::reduce ? seed_ % ranks() : 0;
        check({collective, dtype, op, 331, root});
        if (HasFatalFailure()) return;
      }
}

TEST_P(ReproducibleTest, EverySize) {
  for (const uint64_t count : {0, 1, 2, 3, 7, 4'099, 16'384, 100'003})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const Collective collective : kThatReduce) {
        const uint32_t root = collective == Collective::reduce ? count % ranks() : 0;
        check({collective, dtype, Op::sum, count, root});
        if (HasFatalFailure()) return;
      }
}

// The tests above count only if the order matters to such values.
TEST_P(ReproducibleTest, OtherwiseBitsDependOnStrategyOrLayout) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < ranks(); ++rank)
    inputs.push_back(testing::wild_values(Dtype::f32, 5000, rank));
  std::set<Bytes> different = {testing::reduced_in_rank_order(Dtype::f32, Op::sum, inputs)};
  for (const Strategy& strategy : kMovements)
    different.insert(
        results_of({Collective::all_reduce, Dtype::f32, Op::sum, 5000, 0, {strategy, strategy}},
                   inputs, false)[0]);
  const std::vector<int> here = hosts();
  const bool all_go_by_rank = here == std::vector{1, 1} || here == std::vector{2, 1};
  EXPECT_EQ(different.size() == 1, all_go_by_rank);
}

// As the leader hears of it where a rank is late.
TEST(ReproducibleSignature, EveryFieldTravels) {
  const Signature whole{Collective::reduce,
                        Dtype::bf16,
                        Op::max,
                        1234567,
                        3,
                        {{StrategyKind::ring}, {StrategyKind::tree, 5}},
                        0x800000000000001f,
                        true,
                        true,
                        true};
  v1::Signature sent;
  write_signature(whole, sent);
  const Result<Signature> received = read_signature(sent);
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(*received, whole);
}

// The size of the tensors of all ranks together decides.
TEST(ReproducibleMovement, IsRawWhereTheTensorsAreSmall) {
  const std::vector<Host> hosts = {{"a", "", {0, 1}}, {"b", "", {2}}};
  const Communicator all({0, 1, 2}, hosts, 0), lone({0, 2}, hosts, 0);
  const auto raw = [&](const Communicator& group, Collective collective, uint64_t count,
                       StrategyKind global = StrategyKind::centralized, bool reproducible = true) {
    Signature signature{collective, Dtype::f32, Op::sum, count};
    signature.reproducible = reproducible;
    const Strategies strategies = {{StrategyKind::centralized}, {global}};
    return movement_of(signature, strategies, group, 1 << 20).raw;
  };
  EXPECT_TRUE(raw(all, Collective::all_reduce, 5461));
  EXPECT_FALSE(raw(all, Collective::all_reduce, 5462));
  EXPECT_TRUE(raw(lone, Collective::reduce, 8192));
  EXPECT_FALSE(raw(lone, Collective::reduce, 8193));
  EXPECT_FALSE(raw(lone, Collective::all_reduce, uint64_t{1} << 61));
  EXPECT_TRUE(raw(all, Collective::reduce_scatter, 1820));
  EXPECT_FALSE(raw(all, Collective::reduce_scatter, 1821));
  EXPECT_FALSE(raw(all, Collective::all_reduce, 1, StrategyKind::ring));
}

// Not on GPUs, which fold what arrives.
TEST(AnyOrderMovement, IsRawBetweenTwoRanksWhereTheTensorsAreSmall) {
  const std::vector<Host> hosts = {{"a", "", {0, 1}}, {"b", "", {2}}};
  const Communicator all({0, 1, 2}, hosts, 0), lone({0, 2}, hosts, 0);
  const auto raw = [&](const Communicator& group, uint64_t count, bool on_device = false) {
    Signature signature{Collective::all_reduce, Dtype::f32, Op::sum, count};
    signature.on_device = on_device;
    const Strategies strategies = {{StrategyKind::centralized}, {StrategyKind::centralized}};
    return movement_of(signature, strategies, group, 1 << 20).raw;
  };
  EXPECT_TRUE(raw(lone, 32768));
  EXPECT_FALSE(raw(lone, 32769));
  EXPECT_FALSE(raw(lone, 1, true));
  EXPECT_FALSE(raw(all, 1));
}

// Four for each host, at most 32, of at least 128 KiB.
TEST(ReproducibleMovement, CutsAChainsTensorsIntoManySlices) {
  const std::vector<Host> hosts = {{"a", "", {0, 1}}, {"b", "", {2}}};
  const Communicator all({0, 1, 2}, hosts, 0), lone({0, 2}, hosts, 0);
  const uint64_t mib = 1 << 20;
  const auto slice = [&](const Communicator& group, uint64_t bytes, uint64_t configured,
                         Collective collective = Collective::all_reduce, bool reproducible = true) {
    Signature signature{collective, Dtype::u8, Op::sum, bytes};
    signature.reproducible = reproducible;
    const Strategies strategies = {{StrategyKind::centralized}, {StrategyKind::ring}};
    return movement_of(signature, strategies, group, configured).slice_bytes;
  };
  EXPECT_EQ(slice(all, 0, mib), 128u << 10);
  EXPECT_EQ(slice(all, 2 * mib, mib), 256u << 10);
  EXPECT_EQ(slice(all, 4 * mib - 1, mib), 256u << 10);
  EXPECT_EQ(slice(all, 64 * mib, mib), mib);
  EXPECT_EQ(slice(all, 2 * mib, 4096), 4096u);
  EXPECT_EQ(slice(all, 2 * mib, mib, Collective::reduce), 256u << 10);
  EXPECT_EQ(slice(all, 2 * mib, mib, Collective::reduce_scatter), mib);
  EXPECT_EQ(slice(all, 2 * mib, mib, Collective::all_reduce, false), mib);
  EXPECT_EQ(slice(lone, 2 * mib, mib), mib);
  std::vector<Host> many(16);
  std::vector<int> ranks;
  for (int rank = 0; rank < 32; ++rank) {
    ranks.push_back(rank);
    many[static_cast<size_t>(rank) / 2].ranks.push_back(rank);
  }
  EXPECT_EQ(slice({ranks, many, 0}, 16 * mib, mib), 512u << 10);
}

// Up to 64 KiB, and for hosts with one rank each, as any other reduction.
TEST(ReproducibleMovement, AutoIsCentralizedWhereRoundsCostMoreThanBytes) {
  const std::vector<Host> hosts = {{"a", "", {0, 1}}, {"b", "", {2}}};
  const Communicator all({0, 1, 2}, hosts, 0), lone({0, 2}, hosts, 0);
  const auto in = [&](const Communicator& group, uint64_t bytes, StrategyKind any_order,
                      bool reproducible = true) {
    Signature signature{Collective::all_reduce, Dtype::u8, Op::sum, bytes};
    signature.reproducible = reproducible;
    return automatic_for(signature, group, {any_order, any_order == StrategyKind::tree ? 2u : 0u})
        .kind;
  };
  EXPECT_EQ(in(lone, 4, StrategyKind::ring), StrategyKind::centralized);  // Raw.
  EXPECT_EQ(in(lone, 65'536, StrategyKind::ring), StrategyKind::ring);
  EXPECT_EQ(in(lone, 65'536, StrategyKind::tree), StrategyKind::centralized);
  EXPECT_EQ(in(lone, 65'536, StrategyKind::centralized), StrategyKind::centralized);
  EXPECT_EQ(in(lone, 131'072, StrategyKind::centralized), StrategyKind::centralized);
  EXPECT_EQ(in(lone, 131'072, StrategyKind::ring), StrategyKind::ring);
  EXPECT_EQ(in(lone, 131'073, StrategyKind::centralized), StrategyKind::ring);
  EXPECT_EQ(in(all, 65'536, StrategyKind::ring), StrategyKind::centralized);
  EXPECT_EQ(in(all, 65'537, StrategyKind::centralized), StrategyKind::ring);
  EXPECT_EQ(in(all, 4, StrategyKind::tree, false), StrategyKind::tree);
}

// Two hosts with a rank each send tensors of up to 128 KiB at once, reproducible or not.
TEST(ReproducibleMovement, LoneRanksHaveTheOneRoundOfOtherReductions) {
  const std::vector<Host> hosts = {{"a", "", {0, 1}}, {"b", "", {2}}};
  const Communicator all({0, 1, 2}, hosts, 0), lone({0, 2}, hosts, 0);
  const auto is_raw = [](const Communicator& group, uint64_t bytes, bool reproducible,
                         StrategyKind global = StrategyKind::centralized) {
    Signature signature{Collective::all_reduce, Dtype::u8, Op::sum, bytes};
    signature.reproducible = reproducible;
    return movement_of(signature, {{StrategyKind::centralized}, {global}}, group, 1 << 20).raw;
  };
  for (const bool reproducible : {false, true}) {
    EXPECT_TRUE(is_raw(lone, 131'072, reproducible));
    EXPECT_FALSE(is_raw(lone, 131'073, reproducible));
    EXPECT_FALSE(is_raw(lone, 131'072, reproducible, StrategyKind::ring));
    EXPECT_FALSE(is_raw(all, 65'536, reproducible));
  }
  EXPECT_TRUE(is_raw(all, 4, true)) << "of all ranks at once";
  EXPECT_FALSE(is_raw(all, 4, false)) << "the bits would be others than under a ring";
}

TEST_P(ReproducibleTest, RanksMustAgreeOnIt) {
  Bytes tensor(ranks() * 40);
  const std::vector<Status> ends = cluster_.all([&](int rank) {
    Call call;
    call.signature = {Collective::all_reduce, Dtype::f32, Op::sum, 10};
    call.signature.reproducible = rank == 0;
    call.in = call.out = tensor.data() + rank * 40;
    return call;
  });
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), Code::failed_precondition);
    EXPECT_NE(end.message().find("reproducible"), std::string::npos) << end.message();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ReproducibleTest,
    ::testing::Values(Layout{0, 0, 0, 0}, Layout{0, 1}, Layout{1, 0}, Layout{0, 1, 2},
                      Layout{0, 0, 1}, Layout{0, 1, 1}, Layout{0, 0, 1, 1}, Layout{0, 1, 1, 2},
                      Layout{0, 1, 2, 3}, Layout{0, 1, 0, 1}, Layout{0, 1, 1, 0},
                      Layout{1, 2, 0, 1, 0}, Layout{0, 0, 0, 1, 1, 1, 2, 2},
                      Layout{0, 1, 2, 3, 4, 5, 6, 7}, Layout{0, 1, 0, 1, 2, 1, 0, 2}),
    ::testing::PrintToStringParamName());

Layout dealt_to(int hosts, int ranks) {
  Layout layout;
  for (int rank = 0; rank < ranks; ++rank) layout.push_back(rank % hosts);
  return layout;
}

// One host with one rank, and one with so many.
Layout one_and(int ranks) {
  Layout layout = dealt_to(1, ranks + 1);
  std::fill(layout.begin() + 1, layout.end(), 1);
  return layout;
}

// More terms than are folded at once.
class ReproducibleManyTest : public ReproducibleTest {};

TEST_P(ReproducibleManyTest, ManyRanksAndHosts) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const Op op : {Op::sum, Op::mean}) {
      check({Collective::all_reduce, dtype, op, 97});
      check({Collective::reduce, dtype, op, 5, static_cast<uint32_t>(ranks() - 1)});
      check({Collective::reduce_scatter, dtype, op, 3});
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ReproducibleManyTest,
                         ::testing::Values(dealt_to(1, 150), dealt_to(2, 90), dealt_to(70, 70),
                                           one_and(100), one_and(kLocalRanksMax)));

}  // namespace
}  // namespace tutti

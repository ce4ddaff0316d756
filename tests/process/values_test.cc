// Values of collectives over real agents, workers and ranks: a table of what is checked over which
// memory, on which layouts of ranks and hosts, and of which kind.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "proto/board.h"
#include "tests/process/task.h"

namespace tutti {
namespace {

using namespace testing;

using Layouts = std::vector<std::vector<int>>;

// `name` says what is exact on all of these layouts. With small windows, as of
// mesh_with_small_windows(), tensors of ordinary memory pass between hosts several at a time.
struct Row {
  const char* name;
  Layouts layouts;
  std::vector<Sweep> sweeps;
  bool small_windows = false;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

const std::vector<std::string> kStrategies = {"centralized", "tree:1", "tree:2", "tree:5", "ring"};
const std::vector kEvery(kEveryCollective.begin(), kEveryCollective.end());
const std::vector kEveryMemory(std::begin(kMemories), std::end(kMemories));
const std::vector kEveryWay(std::begin(kWays), std::end(kWays));
const std::vector kWindowed = {Collective::all_reduce, Collective::reduce, Collective::broadcast};
const std::vector kBoth = {true, false};
const std::vector kFloats = {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16};
const Layouts kHosts = {{1, 1}, {2, 2}, {1, 3}, {1, 2, 1}};

template <class Enum>
std::vector<Enum> all_of(int count) {
  std::vector<Enum> all;
  for (int i = 0; i < count; ++i) all.push_back(static_cast<Enum>(i));
  return all;
}

Counts many(size_t tensors, size_t (*count)(size_t)) {
  Counts counts;
  for (size_t i = 0; i < tensors; ++i) counts.push_back(count(i));
  return counts;
}

Counts few_large_and_many_small() {
  Counts counts = {0, 1, 70'000, 3, 0, 200'000, 1000, 65'536, 65'537};
  for (const size_t count : many(300, [](size_t i) { return i * 7 % 1500; }))
    counts.push_back(count);
  return counts;
}

const Sweep kSumsAndMeans = {
    .counts = {0, 4, 10, 35}, .ops = {Op::sum, Op::mean}, .strategies = kStrategies};

std::vector<Row> rows_of_strategies() {
  return {
      {"SumsAndMeansUnderEveryStrategy", {{4}, {2, 2}, {2, 1}, {3, 1}}, {kSumsAndMeans}},
      {"RingsOfFewElements",
       {{3}, {4}, {3, 3}, {2, 2}, {1, 1, 1}, {1, 1, 1, 1}, {2, 2, 2, 2}},
       {{.counts = {3, 4, 5, 9, 13}, .strategies = {"ring"}}}},
  };
}

std::vector<Row> rows_of_one_host() {
  const Counts two_blocks = {2 * kBoardBlockBytes / 8 + 1001, 2 * kBoardBlockBytes / 4 + 1001,
                             2 * kBoardBlockBytes / 2 + 1001};
  const std::vector reductions = {Collective::all_reduce, Collective::reduce,
                                  Collective::reduce_scatter};
  return {
      {"EveryCollectiveOverEveryMemoryOnOneHost",
       {{1}, {2}, {3}, {4}},
       {{.collectives = kEvery,
         .counts = {0, 1, 3, 1001, 40'001},
         .memories = kEveryMemory,
         .ways = kEveryWay,
         .in_place = kBoth}}},
      {"SeveralMegabytesOnOneHost",
       {{2}, {3}},
       {{.collectives = kEvery, .counts = {300'007, 1'200'001}, .memories = kEveryMemory},
        {.counts = {2'000'003},
         .dtypes = {Dtype::u8},
         .ops = {Op::max},
         .memories = {Memory::by_rank},
         .ways = kEveryWay,
         .in_place = {false}}}},
      {"EveryDtypeAndOpOnOneHost",
       {{2}},
       {{.collectives = {Collective::all_reduce, Collective::reduce_scatter},
         .counts = {33, 150'001},
         .dtypes = all_of<Dtype>(kDtypes),
         .ops = all_of<Op>(kOps)}}},
      // Inputs are multiplied wherever they are: in their output's memory, a copy, or a window.
      {"PremultipliedSumsOverEveryMemoryOnOneHost",
       {{3}},
       {{.collectives = reductions,
         .counts = {0, 33, 5001},
         .dtypes = kFloats,
         .ops = {Op::premul_sum},
         .memories = kEveryMemory,
         .ways = kEveryWay,
         .in_place = kBoth},
        {.collectives = reductions,
         .counts = two_blocks,
         .dtypes = kFloats,
         .ops = {Op::premul_sum},
         .in_place = kBoth}}},
  };
}

std::vector<Row> rows_of_lists() {
  return {
      // Their tensors are not copied, whatever the strategy.
      {"ListsInSharedMemoryUnderEveryStrategy",
       {{3}},
       {{.lists = {{1000, 3, 70'000}},
         .memories = {Memory::shared},
         .strategies = {"", "ring", "tree:2", "centralized,ring"}}}},
      // One list is small, the other is staged where it may be.
      {"PremultipliedListsOverEveryMemory",
       {{3}},
       {{.lists = {{1000, 0, 3, 5}, {1000, 0, 3, 200'003}},
         .ops = {Op::premul_sum},
         .memories = kEveryMemory,
         .ways = {Way::async, Way::blocking},
         .in_place = kBoth}}},
      {"ListsUnderEveryStrategy",
       {{2}, {2, 2}, {1, 2, 1}},
       {{.lists = {few_large_and_many_small(), {5}, Counts(5000, 20)},
         .memories = {Memory::by_side},
         .strategies = {"auto", "ring", "centralized", "tree:2", "ring,tree:1"}}}},
  };
}

std::vector<Row> rows_of_uneven_blocks() {
  const std::vector twice = {Way::blocking, Way::async};
  return {
      {"UnevenBlocksOnOneHost",
       {{1}, {2}, {3}, {4}},
       {{.uneven = {5000},
         .memories = kEveryMemory,
         .ways = twice,
         .in_place = kBoth,
         .strategies = {"", "tree:2"}},
        {.uneven = {100'003}, .memories = kEveryMemory, .ways = twice, .in_place = kBoth}}},
      {"UnevenBlocksOverHosts",
       {{1, 1, 0}, {2, 1, 0}, {1, 2, 1}, {0, 1, 3}},
       {{.uneven = {3000},
         .memories = kEveryMemory,
         .ways = twice,
         .in_place = kBoth,
         .strategies = {"ring", "centralized", "tree:2"}}}},
      // More than one slice of the engine, and blocks that end in different slices.
      {"LargeUnevenBlocksOverHosts",
       {{2, 1}},
       {{.uneven = {700'003},
         .memories = {Memory::by_rank},
         .in_place = {false},
         .strategies = {"ring", "centralized"}}}},
  };
}

std::vector<Row> rows_of_small_windows() {
  return {
      {"EveryMemoryThroughSmallWindows",
       kHosts,
       {{.collectives = kWindowed,
         .counts = {16'385, 300'001},
         .memories = kEveryMemory,
         .ways = {Way::blocking, Way::passing, Way::by_rank, Way::by_three},
         .in_place = kBoth}},
       true},
      {"DtypesUnderEveryStrategyThroughSmallWindows",
       kHosts,
       {{.collectives = kWindowed,
         .counts = {700'003},
         .dtypes = {Dtype::bf16, Dtype::f64, Dtype::u8},
         .ops = {Op::max},
         .strategies = {"centralized", "ring", "tree:1", "ring,tree:2"}}},
       true},
      {"ListsThroughSmallWindows",
       kHosts,
       {{.lists = {many(500, [](size_t i) { return i * 37 % 3000; })},
         .ways = {Way::blocking, Way::by_rank}}},
       true},
      // Results that ranks of a host have in common go to one window.
      {"ManyRanksThroughSmallWindows",
       {{7, 2}, {1, 6}},
       {{.collectives = {Collective::all_reduce, Collective::broadcast},
         .counts = {300'001},
         .ways = {Way::blocking, Way::passing},
         .in_place = kBoth},
        {.counts = {200'003}, .ops = {Op::mean}, .strategies = {"ring", "tree:1", "tree:2"}}},
       true},
      // Some are windowed, and some are not.
      {"ManyRanksOfWhichSomePassThroughWindows",
       {{13, 1}},
       {{.counts = {300'001}, .memories = {Memory::by_rank}}},
       true},
      {"ListsLargerThanTheSegment",
       {{1, 2}},
       {{.lists = {Counts(20, 400'000)}, .ways = {Way::blocking, Way::async}}},
       true},
  };
}

// So large that ranks that wait do them; partial sums of 16-bit floats travel as f32.
std::vector<Row> rows_of_shared_folds() {
  return {{"LargeFloatsOverThreeHosts",
           {{2, 3, 2}},
           {{.counts = {1'200'001},
             .dtypes = {Dtype::f32, Dtype::f16, Dtype::bf16},
             .memories = {Memory::shared, Memory::by_rank},
             .strategies = {"tree:1", "tree:2,ring"}}}}};
}

// Several times through windows, row by row.
std::vector<Row> rows_of_rows() {
  return {{"LargeBlocksOverHosts",
           {{2, 2}, {4, 1}},
           {{.collectives = kEvery,
             .counts = {900'001},
             .ways = {Way::blocking, Way::passing, Way::by_rank},
             .in_place = {false}}}}};
}

std::vector<Row> every_row() {
  std::vector<Row> all;
  for (const std::vector<Row>& rows :
       {rows_of_strategies(), rows_of_one_host(), rows_of_lists(), rows_of_uneven_blocks(),
        rows_of_small_windows(), rows_of_rows(), rows_of_shared_folds()})
    all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

TestMesh mesh_of(const Row& row) {
  size_t hosts = 0;
  for (const std::vector<int>& layout : row.layouts) hosts = std::max(hosts, layout.size());
  const int count = static_cast<int>(hosts);
  return row.small_windows ? mesh_with_small_windows(count) : TestMesh(count);
}

class ValuesTable : public ::testing::TestWithParam<Row> {};

TEST_P(ValuesTable, AreExact) {
  const TestMesh mesh = mesh_of(GetParam());
  // Jobs of their own: that a rank has ended on one host may be heard of after it joins on another.
  for (const std::vector<int>& layout : GetParam().layouts) {
    const std::string job = "on " + ::testing::PrintToString(layout);
    EXPECT_EQ(mesh.run(job, layout,
                       [](const RankContext& context) {
                         Group group = context.join();
                         for (const Sweep& sweep : GetParam().sweeps) run_sweep(group, sweep);
                       }),
              "")
        << job;
  }
}

INSTANTIATE_TEST_SUITE_P(, ValuesTable, ::testing::ValuesIn(every_row()),
                         [](const auto& info) { return info.param.name; });

// ---- What is no row of the table ----

std::string run(const std::vector<int>& per_host, const Trainer::Body& body) {
  return TestMesh(static_cast<int>(per_host.size())).run("job", per_host, body);
}

TEST(Values, SumsAndMeansOverGrpc) {
  const Variable transport("TUTTI_TRANSPORT", "grpc");
  const TestMesh mesh(2);
  EXPECT_EQ(mesh.run("grpc", {2, 2},
                     [](const RankContext& context) {
                       Group group = context.join();
                       run_sweep(group, kSumsAndMeans);
                     }),
            "");
  EXPECT_NE(mesh.log_tails().find("at grpc://"), std::string::npos);
}

TEST(Values, OneRankKeepsItsInput) {
  EXPECT_EQ(run({1},
                [](const RankContext& context) {
                  Group group = context.join();
                  for (const std::string& strategy : kStrategies)
                    for (const tutti_op op : {sum, mean}) {
                      std::vector<float> x = {-0.0f, 1e-45f, INFINITY, 3.25f};
                      const std::vector<float> before = x;
                      group.all_reduce(std::span(x), op, {.strategy = strategy});
                      check(std::memcmp(x.data(), before.data(), 16) == 0, strategy);
                    }
                }),
            "");
}

TEST(Values, AHundredOperationsInOneSession) {
  EXPECT_EQ(run({2, 2},
                [](const RankContext& context) {
                  Group group = context.join();
                  constexpr size_t kSizes[] = {1, 1000, 3, 4096, 0, 100'000, 17};
                  for (int i = 0; i < 100; ++i) {
                    std::vector<int64_t> x(kSizes[i % 7]);
                    for (size_t j = 0; j < x.size(); ++j)
                      x[j] = static_cast<int64_t>(j) * (context.rank + 1) + i;
                    group.all_reduce(std::span(x), sum, {.strategy = kStrategies[i % 5]});
                    for (size_t j = 0; j < x.size(); ++j)
                      check(x[j] == static_cast<int64_t>(j) * 10 + 4 * i,
                            "operation " + std::to_string(i));
                  }
                }),
            "");
}

constexpr size_t kElements16 = 4 * 64 * 512;
float value16(int rank, size_t i) {
  return std::sin(static_cast<float>(42 + rank) + static_cast<float>(i)) *
         std::exp(static_cast<float>(rank % 5));
}

void every_pair(const RankContext& context) {
  Group group = context.join(120'000);
  std::vector<float> input(kElements16);
  std::vector<double> reference(kElements16, 0.0), magnitude(kElements16, 0.0);
  for (size_t i = 0; i < kElements16; ++i) {
    input[i] = value16(context.rank, i);
    for (int rank = 0; rank < context.world_size; ++rank) {
      reference[i] += value16(rank, i) / context.world_size;
      magnitude[i] += std::abs(value16(rank, i)) / context.world_size;
    }
  }
  for (const std::string& local : kStrategies)
    for (const std::string& global : kStrategies) {
      const std::string strategy = local + "," + global;
      std::vector<float> first = input, second = input, all(kElements16), least(kElements16);
      group.all_reduce(std::span(first), mean, {.strategy = strategy});
      group.all_reduce(std::span(second), mean, {.strategy = strategy});
      check(first == second, strategy + ": two runs differ");
      for (size_t i = 0; i < kElements16; ++i)
        check(std::abs(first[i] - reference[i]) <= 1e-5 * magnitude[i], strategy + ": wrong");
      // All ranks have the same bits where the largest and the smallest are equal.
      std::vector<int32_t> bits(kElements16), lowest(kElements16);
      std::memcpy(bits.data(), first.data(), kElements16 * 4);
      lowest = bits;
      group.all_reduce(std::span(bits), tutti::max);
      group.all_reduce(std::span(lowest), tutti::min);
      check(bits == lowest, strategy + ": ranks differ");
    }
}

TEST(Values, EveryPairOfStrategiesOnFourHostsOfFour) {
  EXPECT_EQ(run({4, 4, 4, 4}, every_pair), "");
}

}  // namespace
}  // namespace tutti

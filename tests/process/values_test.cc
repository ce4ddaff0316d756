// Acceptance checks, over real agents, workers and ranks: each collective's values under every
// strategy, for even and uneven sizes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/support/test_mesh.h"

namespace tutti {
namespace {

using namespace testing;

const std::vector<std::string> kStrategies = {"centralized", "tree:1", "tree:2", "tree:5", "ring"};

// One mesh for the whole file; each test has its own job.
class Values : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { mesh_ = new TestMesh(4); }
  static void TearDownTestSuite() { delete std::exchange(mesh_, nullptr); }

  static std::string job() {
    return ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  static std::string run(const std::vector<int>& per_host, const testing::Trainer::Body& body) {
    return mesh_->run(job(), per_host, body);
  }

  static TestMesh* mesh_;
};

TestMesh* Values::mesh_ = nullptr;

void check_equal(const std::vector<float>& got, const std::vector<float>& want,
                 const std::string& where) {
  for (size_t i = 0; i < want.size(); ++i)
    check(got.at(i) == want[i], where + ": element " + std::to_string(i) + " is " +
                                    std::to_string(got[i]) + ", not " + std::to_string(want[i]));
}

void sum_and_mean(const RankContext& context) {
  Group group = context.join();
  const auto r = static_cast<float>(context.rank);
  for (const std::string& strategy : kStrategies) {
    std::vector<float> x = {r, r + 1, r + 2, r + 3};
    group.all_reduce(std::span(x), sum, {.strategy = strategy});
    check_equal(x, {6, 10, 14, 18}, strategy + " sum");
    x = {r, r + 1, r + 2, r + 3};
    group.all_reduce(std::span(x), mean, {.strategy = strategy});
    check_equal(x, {1.5, 2.5, 3.5, 4.5}, strategy + " mean");
  }
}

TEST_F(Values, SumAndMeanOfFourUnderEveryStrategy) {
  EXPECT_EQ(run({4}, sum_and_mean), "");
  EXPECT_EQ(mesh_->run(job() + "-hosts", {2, 2}, sum_and_mean), "");
}

TEST(ValuesOverGrpc, SumAndMeanOfFourUnderEveryStrategy) {
  setenv("TUTTI_TRANSPORT", "grpc", 1);
  const TestMesh mesh(2);
  unsetenv("TUTTI_TRANSPORT");
  EXPECT_EQ(mesh.run("grpc", {2, 2}, sum_and_mean), "");
  EXPECT_NE(mesh.log_tails().find("at grpc://"), std::string::npos);
}

TEST_F(Values, OneRankKeepsItsInput) {
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

// all_reduce of `count` elements of rank + 1 under ring; the exact sum everywhere.
void ring_of(const RankContext& context, size_t count, bool ones) {
  Group group = context.join();
  std::vector<float> x(count, ones ? 1.0f : static_cast<float>(context.rank + 1));
  group.all_reduce(std::span(x), sum, {.strategy = "ring"});
  const int n = context.world_size;
  const auto want = static_cast<float>(ones ? n : n * (n + 1) / 2);
  check_equal(x, std::vector<float>(count, want), std::to_string(n) + " ranks");
}

TEST_F(Values, RingOfFewerElementsThanRanks) {
  EXPECT_EQ(mesh_->run("a", {3}, [](const RankContext& context) { ring_of(context, 3, false); }),
            "");
  EXPECT_EQ(mesh_->run("b", {4}, [](const RankContext& context) { ring_of(context, 3, false); }),
            "");
  EXPECT_EQ(
      mesh_->run("c", {1, 1, 1, 1}, [](const RankContext& context) { ring_of(context, 3, false); }),
      "");
}

TEST_F(Values, RingOfUnevenSlices) {
  EXPECT_EQ(mesh_->run("a", {2, 2}, [](const RankContext& context) { ring_of(context, 5, false); }),
            "");
  EXPECT_EQ(
      mesh_->run("b", {2, 2, 2, 2}, [](const RankContext& context) { ring_of(context, 9, true); }),
      "");
  EXPECT_EQ(
      mesh_->run("c", {1, 1, 1}, [](const RankContext& context) { ring_of(context, 4, false); }),
      "");
  EXPECT_EQ(
      mesh_->run("d", {3, 3}, [](const RankContext& context) { ring_of(context, 13, false); }), "");
}

TEST_F(Values, TinyAndEmptyTensors) {
  EXPECT_EQ(mesh_->run("a", {2, 2}, [](const RankContext& context) { ring_of(context, 4, false); }),
            "");
  EXPECT_EQ(run({2, 1},
                [](const RankContext& context) {
                  Group group = context.join();
                  for (const std::string& strategy : kStrategies) {
                    std::vector<float> empty;
                    group.all_reduce(std::span(empty), sum, {.strategy = strategy});
                  }
                }),
            "");
}

TEST_F(Values, TwoDimensionsUnderEveryStrategy) {
  EXPECT_EQ(run({2, 1},
                [](const RankContext& context) {
                  Group group = context.join();
                  for (const std::string& strategy : kStrategies) {
                    std::vector<float> x(35), want(35);
                    for (int i = 0; i < 35; ++i) {
                      x[i] = static_cast<float>(i + context.rank);
                      want[i] = static_cast<float>(3 * i + 3);
                    }
                    group.all_reduce(std::span(x), sum, {.strategy = strategy});
                    check_equal(x, want, strategy);
                  }
                }),
            "");
}

TEST_F(Values, MeanIsOverRanksNotHosts) {
  EXPECT_EQ(run({3, 1},
                [](const RankContext& context) {
                  Group group = context.join();
                  for (const std::string& strategy : kStrategies) {
                    std::vector<float> x(10, static_cast<float>(context.rank));
                    group.all_reduce(std::span(x), mean, {.strategy = strategy});
                    check_equal(x, std::vector<float>(10, 1.5), strategy);
                  }
                }),
            "");
}

TEST_F(Values, AHundredOperationsInOneSession) {
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

TEST_F(Values, EveryPairOfStrategiesOnFourHostsOfFour) {
  EXPECT_EQ(run({4, 4, 4, 4}, every_pair), "");
}

}  // namespace
}  // namespace tutti

// Means over the towers of a group's ranks, over real agents and workers.
#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "tests/average_gradients/gradients.h"
#include "tests/process/board_fixture.h"
#include "tests/support/scarce_memory.h"
#include "tests/support/test_mesh.h"

namespace tutti::average_gradients {
namespace {

using tutti::testing::check;
using tutti::testing::RankContext;

class GroupTest : public tutti::testing::TwoHostsTest {};

Means average(const Group& group, const std::vector<Tower>& towers, const Options& options = {}) {
  Result<Means> means = average_gradients(towers, options, group.get());
  check(means.ok(), means.status().to_string());
  return *std::move(means);
}

void check_numbers(const Means& means, size_t index, const Numbers& expected) {
  check(means.size() > index && means[index].has_value(), "a mean");
  const Numbers numbers = numbers_at(means, index);
  check(numbers == expected,
        ::testing::PrintToString(numbers) + " is not " + ::testing::PrintToString(expected));
}

void check_refusal(const Group& group, const std::vector<Tower>& towers, const Options& options,
                   const std::vector<std::string>& parts) {
  const Status status = average_gradients(towers, options, group.get()).status();
  for (const std::string& part : parts) {
    const auto failed = fails(status, Code::invalid_argument, part);
    check(failed, failed.message() + std::string(" does not say ") + part);
  }
  check_numbers(average(group, towers_of({scalar(1)})), 0, {1});  // The group goes on.
}

TEST_F(GroupTest, EveryKindOfGradient) {
  EXPECT_EQ(run({2, 2},
                [](const RankContext& context) {
                  const Group group = context.join();
                  const double rank = context.rank;
                  const Tower tower = {
                      gradient(scalar(rank)), gradient(floats({})),
                      gradient(tensor_of(Dtype::f16, {2}, {60000, rank})),
                      gradient(tensor_of(Dtype::f64, {1, 3}, {rank, 2 * rank, 1})),
                      gradient(tensor_of(Dtype::f32, {1000}, Numbers(1000, rank)))};
                  for (int round = 0; round < 3; ++round) {
                    const Means means = average(group, {tower});
                    check_numbers(means, 0, {1.5});
                    check_numbers(means, 1, {});
                    check_numbers(means, 2, {60000, 1.5});
                    check_numbers(means, 3, {1.5, 3, 1});
                    check_numbers(means, 4, Numbers(1000, 1.5));
                    check(elements_of(*means[3]).shape() == Shape{1, 3}, "the shape");
                  }
                  check(average(group, {Tower()}).empty(), "no variables");
                }),
            "");
}

TEST_F(GroupTest, SeveralTowersOnSomeRanks) {
  EXPECT_EQ(run({2, 1},
                [](const RankContext& context) {
                  const Group group = context.join();
                  std::vector<std::optional<Value>> values;  // 1; 2, 3; 4, 5, 6.
                  for (int i = 0; i <= context.rank; ++i)
                    values.emplace_back(scalar(context.rank * (context.rank + 1) / 2 + i + 1));
                  check_numbers(average(group, towers_of(values)), 0, {3.5});
                }),
            "");
}

TEST_F(GroupTest, NoneOnSomeRanks) {
  EXPECT_EQ(
      run({2, 1},
          [](const RankContext& context) {
            const Group group = context.join();
            const bool has = context.rank != 1;
            const Tower tower = {
                {has ? std::optional<Value>(floats({2.0 + context.rank, 6})) : std::nullopt, "w"},
                none("v"),
                gradient(scalar(3), "u")};
            const Means skipped = average(group, {tower}, {.none = NonePolicy::skip});
            check_numbers(skipped, 0, {3, 6});
            check(!skipped[1].has_value(), "no mean");
            check_numbers(skipped, 2, {3});
            const Means zeros = average(group, {tower}, {.none = NonePolicy::zeros});
            check_numbers(zeros, 0, {2, 4});
            check(!zeros[1].has_value(), "no mean");
            check_refusal(group, {tower}, {},
                          {context.rank == 1 ? "variable 'w' is None in tower 0"
                                             : "variable 'v' is None in tower 0"});
            const Tower one = {{has ? std::optional<Value>(scalar(1)) : std::nullopt, "w"}};
            check_refusal(group, {one}, {},
                          {has ? "rank 1 refused the call: the gradient of variable 'w'"
                               : "variable 'w' is None"});
          }),
      "");
}

TEST_F(GroupTest, SlicesOfDifferentLengths) {
  EXPECT_EQ(run({2, 1},
                [](const RankContext& context) {
                  const Group group = context.join();
                  const std::vector<std::optional<Value>> parts = {
                      slices({1}, {1, 2}, 2, Shape{5, 2}), std::nullopt,
                      slices({1, 3}, {3, 4, 5, 6}, 2, Shape{5, 2})};
                  const auto own = towers_of({parts[static_cast<size_t>(context.rank)]});
                  const Means means = average(group, own, {.none = NonePolicy::skip});
                  check_numbers(means, 0, {2, 3, 2.5, 3});
                  check(numbers_of(slices_at(means, 0).indices) == Numbers{1, 3}, "indices");
                  check(slices_at(means, 0).dense_shape == Shape{5, 2}, "dense_shape");
                  const Means kept =
                      average(group, own, {.none = NonePolicy::skip, .sum_duplicates = false});
                  check_numbers(kept, 0, {0.5, 1, 1.5, 2, 2.5, 3});
                  const auto all = towers_of({slices({context.rank}, {3}, 1)});
                  const Means three = average(group, all);
                  check_numbers(three, 0, {1, 1, 1});
                }),
            "");
}

TEST_F(GroupTest, Clipping) {
  EXPECT_EQ(run({2},
                [](const RankContext& context) {
                  const Group group = context.join();
                  const auto own = towers_of({context.rank == 0 ? floats({6, 8}) : floats({0, 0})});
                  check_numbers(average(group, own, {.clip_norm = 5}), 0, {1.5, 2});
                  check_numbers(average(group, own, {.clip_global_norm = 2.5}), 0, {1.5, 2});
                }),
            "");
}

TEST_F(GroupTest, Disagreement) {
  EXPECT_EQ(run({2, 1},
                [](const RankContext& context) {
                  const Group group = context.join();
                  const bool odd = context.rank == 1;
                  check_refusal(group, towers_of({odd ? floats({1, 2, 3}) : floats({1, 2})}), {},
                                {"variable 'w': f32[2]", "variable 'w': f32[3]"});
                  for (const NonePolicy policy : {NonePolicy::skip, NonePolicy::zeros})
                    check_refusal(group, towers_of({odd ? floats({1, 2, 3}) : floats({1, 2})}),
                                  {.none = policy},
                                  {"variable 'w' differ: rank 0 has f32[2], rank 1 has f32[3]"});
                  check_refusal(group, {{gradient(scalar(1), odd ? "a" : "b")}}, {},
                                {"variable 'a'", "variable 'b'"});
                  check_refusal(group, {Tower(odd ? 2 : 3, gradient(scalar(1)))}, {},
                                {"3 variables", "2 variables"});
                  check_refusal(group, towers_of({scalar(1)}), {.clip_norm = odd ? 1.0 : 2.0},
                                {"clip_norm 1,", "clip_norm 2,"});
                  for (const double norm : {1e-7, 3.0})  // The next number differs, too.
                    check_refusal(group, towers_of({scalar(1)}),
                                  {.clip_global_norm = odd ? std::nextafter(norm, 9) : norm},
                                  {"clip_global_norm " + std::string(norm == 3 ? "3'" : "1e-07'")});
                  check_refusal(group, towers_of({scalar(1, odd ? Dtype::i32 : Dtype::f32)}), {},
                                {"gradients of i32 have no mean"});
                }),
            "");
}

TEST_F(GroupTest, VariablesNeedNotBeComparedNorAsMany) {
  EXPECT_EQ(run({2},
                [](const RankContext& context) {
                  const Group group = context.join();
                  const std::string own = "gpu" + std::to_string(context.rank);
                  const Tower tower(context.rank == 0 ? 2 : 3, gradient(scalar(context.rank), own));
                  const Means means =
                      average(group, {tower}, {.strict = false, .compare_variables = false});
                  check(means.size() == 2, "the shorter");
                  check_numbers(means, 1, {0.5});
                  check_refusal(group, {tower}, {.strict = false},
                                {"variable 'gpu0'", "variable 'gpu1'"});
                }),
            "");
}

// The random gradient of a rank.
std::vector<float> random_gradient(int rank, size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& number : numbers) number = normal(random) * 100;
  return numbers;
}

void add_memory(const Value& value, std::vector<const void*>& memory) {
  memory.push_back(elements_of(value).data());
  if (const auto* rows = std::get_if<IndexedSlices>(&value)) memory.push_back(rows->indices.data());
}

// After results are overwritten, too, all inputs must have these numbers.
void check_new_memory(const Means& means, const std::vector<Tower>& own, const Numbers& numbers) {
  std::vector<const void*> memory;
  for (const std::optional<Value>& mean : means) {
    add_memory(*mean, memory);
    std::memset(elements_of(*mean).data(), 0xff, elements_of(*mean).bytes());
  }
  for (const Tower& tower : own)
    for (const Gradient& gradient : tower) {
      add_memory(*gradient.value, memory);
      check(numbers_of(elements_of(*gradient.value)) == numbers, "an input");
    }
  std::ranges::sort(memory);
  check(std::ranges::adjacent_find(memory) == memory.end(), "memory is shared");
}

// Every strategy's mean is within an ulp of the sum for each addition, and the same on all ranks.
void check_strategy(const Group& group, const std::string& strategy) {
  constexpr size_t kCount = 5001;
  const std::vector<float> own = random_gradient(group.rank(), kCount);
  const Tensor tensor = Tensor::view(Dtype::f32, {kCount}, own.data());
  const Means means = average(group, towers_of({tensor}), {.strategy = strategy});
  const auto* mean = reinterpret_cast<const float*>(elements_of(*means[0]).data());
  std::vector<double> sums(kCount);
  std::vector<double> bounds(kCount);
  for (int rank = 0; rank < group.world_size(); ++rank) {
    const std::vector<float> numbers = random_gradient(rank, kCount);
    for (size_t i = 0; i < kCount; ++i) {
      sums[i] += static_cast<double>(numbers[i]);
      bounds[i] += std::abs(static_cast<double>(numbers[i]));
    }
  }
  const double ranks = group.world_size();
  for (size_t i = 0; i < kCount; ++i)
    check(std::abs(static_cast<double>(mean[i]) - sums[i] / ranks) <=
              ranks * 0x1p-24 * bounds[i] / ranks,
          "the mean by " + strategy);
  std::vector<float> all(kCount * static_cast<size_t>(ranks));
  Error::check(
      tutti_all_gather(group.get(), mean, all.data(), kCount, TUTTI_F32, nullptr, nullptr));
  for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank)
    check(std::memcmp(&all[rank * kCount], mean, kCount * sizeof(float)) == 0, "the same bits");
}

TEST_F(GroupTest, EveryStrategy) {
  EXPECT_EQ(run({2, 2},
                [](const RankContext& context) {
                  const Group group = context.join();
                  for (const char* strategy : {"", "centralized", "tree:2", "ring", "tree:1,ring"})
                    check_strategy(group, strategy);
                }),
            "");
}

// Rank 1 makes the call with less memory than it takes. All fail, and the next call works.
void check_out_of_memory(const Group& group, const std::vector<Tower>& towers,
                         const Options& options = {}) {
  std::optional<tutti::testing::SmallMemory> small;
  if (group.rank() == 1) small.emplace(100'000);
  const Status status = average_gradients(towers, options, group.get()).status();
  small.reset();
  const auto failed =
      fails(status, Code::resource_exhausted,
            group.rank() == 1 ? "this process is out of memory" : "rank 1 refused the call: this");
  check(failed, failed.message());
  check_numbers(average(group, towers_of({scalar(1)})), 0, {1});
}

// Each dtype is an operation: the rank whose calls are refused makes as many as the others.
TEST_F(GroupTest, ARankWhoseStrategyIsRefusedStaysInStep) {
  EXPECT_EQ(run({2, 2},
                [](const RankContext& context) {
                  const Group group = context.join();
                  for (int step = 0; step < 4; ++step) {
                    const Tower tower = {gradient(scalar(step)),
                                         gradient(tensor_of(Dtype::f64, {2}, {100.0 * step, 1}))};
                    Options options;
                    if (step == 1 && context.rank == 1) options.strategy = "rong";
                    const auto means = average_gradients({tower}, options, group.get());
                    check(means.ok() == (step != 1), "step " + std::to_string(step));
                    if (!means.ok()) continue;
                    check_numbers(*means, 0, {static_cast<double>(step)});
                    check_numbers(*means, 1, {100.0 * step, 1});
                  }
                }),
            "");
}

TEST_F(GroupTest, ARankWithoutMemoryLeavesAllInStep) {
  EXPECT_EQ(
      run({2, 1},
          [](const RankContext& context) {
            const Group group = context.join();
            const bool lacks = context.rank == 1;
            const Numbers ones(60'000, 1);
            for (const Dtype dtype : {Dtype::f32, Dtype::f16}) {
              const Tensor own = tensor_of(dtype, {60'000}, ones);
              check_out_of_memory(group, towers_of({own}));
              check_out_of_memory(group, towers_of({own, own}));
              check_out_of_memory(group, towers_of({own}), {.clip_norm = 1});
              check_out_of_memory(group,
                                  towers_of({lacks ? std::nullopt : std::optional<Value>(own)}),
                                  {.none = NonePolicy::skip});
            }
            check_out_of_memory(
                group, towers_of({lacks ? slices({}, {}, 60'000) : slices({0}, ones, 60'000)}));
          }),
      "");
}

// Inputs are as before, and no result is in the memory of an input or of another result.
TEST_F(GroupTest, InputsAreNotChangedAndResultsAreNewMemory) {
  EXPECT_EQ(run({2, 1},
                [](const RankContext& context) {
                  const Group group = context.join();
                  for (const Dtype dtype : {Dtype::f32, Dtype::f16})
                    for (const size_t towers : {1, 2}) {
                      const Numbers numbers = {6.0 * context.rank, 8};
                      const auto rows = [&] {
                        return IndexedSlices{tensor_of(dtype, {1, 2}, numbers),
                                             tensor_of(Dtype::i64, {1}, {0}), Shape{2, 2}};
                      };
                      std::vector<Tower> own(towers);
                      for (Tower& tower : own)
                        tower = {gradient(tensor_of(dtype, {2}, numbers)),
                                 gradient(tensor_of(dtype, {2}, numbers)), gradient(rows())};
                      Options clipped{.clip_norm = 5};
                      clipped.clip_global_norm = 1;
                      for (const Options& options : {Options(), Options{.none = NonePolicy::zeros},
                                                     Options{.sum_duplicates = false}, clipped})
                        check_new_memory(average(group, own, options), own, numbers);
                    }
                }),
            "");
}

TEST_F(GroupTest, AnAbsentRankEndsTheCall) {
  const tutti::testing::SharedCounters failed;
  EXPECT_EQ(run({2},
                [&](const RankContext& context) {
                  const Group group = context.join();
                  if (context.rank == 1) failed.wait_for(0, 1);
                  const Options options{.timeout_seconds = context.rank == 0 ? 0.5 : 60};
                  const Status status =
                      average_gradients(towers_of({scalar(1)}), options, group.get()).status();
                  const auto named = fails(status, Code::deadline_exceeded, "rank 1");
                  check(named, named.message());
                  failed[0].fetch_add(1);
                  check_numbers(average(group, towers_of({scalar(1)})), 0, {1});
                }),
            "");
}

}  // namespace
}  // namespace tutti::average_gradients

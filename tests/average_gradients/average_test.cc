// Means over the towers of one process.
#include <cmath>
#include <limits>
#include <map>

#include "tests/average_gradients/gradients.h"

namespace tutti::average_gradients {
namespace {

Means average(const std::vector<Tower>& towers, const Options& options = {}) {
  Result<Means> means = average_gradients(towers, options);
  EXPECT_TRUE(means.ok()) << means.status().to_string();
  return means.ok() ? *std::move(means) : Means();
}

Status refusal(const std::vector<Tower>& towers, const Options& options = {}) {
  return average_gradients(towers, options).status();
}

TEST(Average, OfFourTowersOfThreeVariables) {
  std::vector<Tower> towers(4);
  for (int tower = 0; tower < 4; ++tower)
    for (int variable = 0; variable < 3; ++variable)
      towers[static_cast<size_t>(tower)].push_back(
          gradient(scalar(10 * variable + tower),
                   "var" + std::to_string(variable) + "_gpu" + std::to_string(tower)));
  const Means means = average(towers);
  ASSERT_EQ(means.size(), 3u);
  EXPECT_EQ(numbers_at(means, 0), Numbers{1.5});
  EXPECT_EQ(numbers_at(means, 1), Numbers{11.5});
  EXPECT_EQ(numbers_at(means, 2), Numbers{21.5});
}

TEST(Average, OfASingleTower) {
  const Means means = average({{gradient(floats({1, 2})), gradient(scalar(7, Dtype::i32))}});
  EXPECT_EQ(numbers_at(means, 0), (Numbers{1, 2}));
  EXPECT_EQ(numbers_at(means, 1), Numbers{7});
}

TEST(Average, OfNothing) {
  EXPECT_TRUE(average({}).empty());
  EXPECT_TRUE(average({{}, {}}).empty());
}

TEST(Average, DoesNotShareMemory) {
  for (const size_t count : {1u, 2u}) {
    const Tensor first = floats({1, 2});
    const IndexedSlices rows = slices({1}, {1, 2}, 2);
    std::vector<Tower> towers(count, {gradient(first), gradient(rows)});
    for (const bool sum_duplicates : {true, false}) {
      const Means means = average(towers, {.sum_duplicates = sum_duplicates});
      EXPECT_NE(elements_of(*means[0]).data(), first.data());
      EXPECT_NE(slices_at(means, 1).values.data(), rows.values.data());
      EXPECT_NE(slices_at(means, 1).indices.data(), rows.indices.data());
    }
    EXPECT_EQ(numbers_of(first), (Numbers{1, 2}));
  }
}

TEST(Towers, OfDifferentLengths) {
  const std::vector<Tower> towers = {
      {gradient(scalar(1)), gradient(scalar(2)), gradient(scalar(3))},
      {gradient(scalar(3)), gradient(scalar(4))}};
  EXPECT_TRUE(fails(refusal(towers), Code::invalid_argument, "tower 0 has 3, tower 1 has 2"));
  const Means means = average(towers, {.strict = false});
  ASSERT_EQ(means.size(), 2u);
  EXPECT_EQ(numbers_at(means, 1), Numbers{3});
}

TEST(None, ByPolicy) {
  const std::vector<Tower> towers = towers_of({scalar(2), {}, scalar(4)});
  EXPECT_TRUE(fails(refusal(towers), Code::invalid_argument,
                    "the gradient of variable 'w' is None in tower 1"));
  EXPECT_EQ(numbers_at(average(towers, {.none = NonePolicy::skip}), 0), Numbers{3});
  EXPECT_EQ(numbers_at(average(towers, {.none = NonePolicy::zeros}), 0), Numbers{2});
}

TEST(None, InTheFirstTowerIsAsInAnother) {
  const std::vector<Tower> towers = towers_of({{}, scalar(2), scalar(4)});
  EXPECT_EQ(numbers_at(average(towers, {.none = NonePolicy::skip}), 0), Numbers{3});
  EXPECT_EQ(numbers_at(average(towers, {.none = NonePolicy::zeros}), 0), Numbers{2});
}

TEST(None, InAllTowers) {
  const std::vector<Tower> towers = {{none(), gradient(scalar(1))}, {none(), gradient(scalar(3))}};
  EXPECT_TRUE(fails(refusal(towers), Code::invalid_argument, "variable 0 is None in tower 0"));
  for (const NonePolicy policy : {NonePolicy::skip, NonePolicy::zeros}) {
    const Means means = average(towers, {.none = policy, .clip_global_norm = 10});
    EXPECT_FALSE(means[0].has_value());
    EXPECT_EQ(numbers_at(means, 1), Numbers{2});
  }
}

TEST(None, PolicyIsReadFromText) {
  EXPECT_EQ(*parse_none_policy("error"), NonePolicy::error);
  EXPECT_EQ(*parse_none_policy("skip"), NonePolicy::skip);
  EXPECT_EQ(*parse_none_policy("zeros"), NonePolicy::zeros);
  EXPECT_TRUE(fails(parse_none_policy("drop").status(), Code::invalid_argument, "'drop'"));
}

TEST(Shapes, AreNotBroadcast) {
  for (const Shape& other : {Shape{3, 2}, Shape{1, 3}, Shape{6}}) {
    const size_t count = other == Shape{1, 3} ? 3 : 6;
    const std::vector<Tower> towers = towers_of({tensor_of(Dtype::f32, {2, 3}, Numbers(6, 1)),
                                                 tensor_of(Dtype::f32, other, Numbers(count, 1))});
    EXPECT_TRUE(fails(refusal(towers), Code::invalid_argument, "variable 'w': "));
    EXPECT_TRUE(fails(refusal(towers), Code::invalid_argument, cross_device::to_string(other)));
  }
}

TEST(Shapes, OfEveryKindTogether) {
  const Tower tower = {gradient(scalar(3)), gradient(floats({})),
                       gradient(tensor_of(Dtype::f32, {2, 0, 3}, {})), gradient(floats({1, 5}))};
  const Means means = average({tower, tower, tower});
  EXPECT_EQ(elements_of(*means[0]).shape(), Shape{});
  EXPECT_EQ(numbers_at(means, 0), Numbers{3});
  EXPECT_EQ(elements_of(*means[1]).shape(), Shape{0});
  EXPECT_EQ(elements_of(*means[2]).shape(), (Shape{2, 0, 3}));
  EXPECT_EQ(numbers_at(means, 3), (Numbers{1, 5}));
}

TEST(Dtypes, AreKept) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16}) {
    const Means means =
        average(towers_of({tensor_of(dtype, {2}, {1, 2}), tensor_of(dtype, {2}, {3, 4})}));
    EXPECT_EQ(numbers_at(means, 0), (Numbers{2, 3}));
    EXPECT_EQ(elements_of(*means[0]).dtype(), dtype);
  }
}

TEST(Dtypes, RoundingIsToEven) {
  Tensor above = scalar(1, Dtype::bf16);
  const uint16_t bits = 0x3f81;  // 1 + 2^-7, the next bf16.
  std::memcpy(above.data(), &bits, sizeof bits);
  EXPECT_EQ(numbers_at(average(towers_of({scalar(1, Dtype::bf16), above})), 0), Numbers{1});
}

TEST(Dtypes, IntegersHaveNoMean) {
  const std::vector<Tower> towers =
      towers_of({scalar(1, Dtype::i32), scalar(0, Dtype::i32), scalar(1, Dtype::i32)});
  EXPECT_TRUE(fails(refusal(towers), Code::invalid_argument, "variable 'w': gradients of i32"));
  EXPECT_TRUE(fails(refusal(towers_of({scalar(1, Dtype::i32)}), {.clip_norm = 1}),
                    Code::invalid_argument, "i32"));
  EXPECT_FALSE(refusal(towers_of({scalar(1, Dtype::boolean)})).ok());
}

TEST(Dtypes, ThatDifferAreRefused) {
  const std::vector<Tower> towers = towers_of({scalar(1), scalar(1, Dtype::f64)});
  EXPECT_TRUE(fails(refusal(towers), Code::invalid_argument, "f32[], replica 1 has f64[]"));
}

std::vector<Tower> sparse_towers() {
  return towers_of({slices({1}, {1, 2}, 2), slices({1, 3}, {3, 4, 5, 6}, 2)});
}

TEST(Sparse, RowsOfOneIndexAreSummed) {
  const Means means = average(sparse_towers());
  EXPECT_EQ(numbers_of(slices_at(means, 0).indices), (Numbers{1, 3}));
  EXPECT_EQ(numbers_at(means, 0), (Numbers{2, 3, 2.5, 3}));
}

TEST(Sparse, RowsMayBeKept) {
  const Means means = average(sparse_towers(), {.sum_duplicates = false});
  EXPECT_EQ(numbers_of(slices_at(means, 0).indices), (Numbers{1, 1, 3}));
  EXPECT_EQ(numbers_at(means, 0), (Numbers{0.5, 1, 1.5, 2, 2.5, 3}));
}

TEST(Sparse, IndicesAscend) {
  const Means means = average(towers_of({slices({7, -2, 7}, {1, 2, 4}, 1, Shape{9, 1})}));
  EXPECT_EQ(numbers_of(slices_at(means, 0).indices), (Numbers{-2, 7}));
  EXPECT_EQ(numbers_at(means, 0), (Numbers{2, 5}));
  EXPECT_EQ(slices_at(means, 0).dense_shape, (Shape{9, 1}));
}

TEST(Sparse, ManyRowsInAnyOrder) {
  constexpr int64_t kRows = 5000;
  std::vector<int64_t> indices;
  Numbers values;
  std::map<int64_t, std::pair<double, double>> sums;
  for (int64_t i = 0; i < kRows; ++i) {
    indices.push_back((i * 7919) % 613 - 100);
    values.insert(values.end(), {static_cast<double>(i % 97), static_cast<double>(i % 89)});
    sums[indices.back()].first += static_cast<double>(i % 97);
    sums[indices.back()].second += static_cast<double>(i % 89);
  }
  const Means means = average(towers_of({slices(indices, values, 2), slices({}, {}, 2)}));
  Numbers expected_indices;
  Numbers expected;
  for (const auto& [index, sum] : sums) {
    expected_indices.push_back(static_cast<double>(index));
    expected.insert(expected.end(), {sum.first / 2, sum.second / 2});
  }
  EXPECT_EQ(numbers_of(slices_at(means, 0).indices), expected_indices);
  EXPECT_EQ(numbers_at(means, 0), expected);
}

TEST(Sparse, WithoutRows) {
  const Means means = average(towers_of({slices({}, {}, 2), slices({}, {}, 2)}));
  EXPECT_EQ(elements_of(*means[0]).shape(), (Shape{0, 2}));
}

TEST(Sparse, IndicesOf32Bits) {
  IndexedSlices rows = slices({5, 5}, {1, 2}, 1);
  rows.indices = tensor_of(Dtype::i32, {2}, {5, 5});
  const Means means = average(towers_of({rows, rows}));
  EXPECT_EQ(slices_at(means, 0).indices.dtype(), Dtype::i32);
  EXPECT_EQ(numbers_of(slices_at(means, 0).indices), Numbers{5});
  EXPECT_EQ(numbers_at(means, 0), Numbers{3});
}

TEST(Sparse, ADenseTowerMakesAllDense) {
  const Means means = average(towers_of(
      {slices({0}, {2, 4}, 2, Shape{2, 2}), tensor_of(Dtype::f32, {2, 2}, {2, 2, 2, 2})}));
  EXPECT_EQ(numbers_of(dense(*means[0])), (Numbers{2, 3, 1, 1}));
}

TEST(Clip, AfterTheMean) {
  const std::vector<Tower> towers = towers_of({floats({2, 4}), floats({4, 4})});
  EXPECT_EQ(numbers_at(average(towers, {.clip_global_norm = 1}), 0), (Numbers{0.6f, 0.8f}));
  EXPECT_EQ(numbers_at(average(towers, {.clip_global_norm = 10}), 0), (Numbers{3, 4}));
}

TEST(Clip, AfterTheMeanOfSeveralVariables) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::f16}) {
    const Tower tower = {gradient(scalar(3, dtype)), none(), gradient(scalar(4, dtype))};
    const Means means = average({tower}, {.none = NonePolicy::skip, .clip_global_norm = 2.5});
    EXPECT_EQ(numbers_at(means, 0), Numbers{1.5});
    EXPECT_EQ(numbers_at(means, 2), Numbers{2});
  }
}

TEST(Clip, BeforeTheMean) {
  const std::vector<Tower> towers = towers_of({floats({6, 8}), floats({0, 0})});
  EXPECT_EQ(numbers_at(average(towers, {.clip_norm = 5}), 0), (Numbers{1.5, 2}));
  EXPECT_EQ(numbers_at(average(towers, {.clip_global_norm = 5}), 0), (Numbers{3, 4}));
}

TEST(Clip, OfSlices) {
  const std::vector<Tower> towers = towers_of({slices({2}, {6, 8}, 2)});
  const Means means = average(towers, {.clip_norm = 5});
  EXPECT_EQ(numbers_at(means, 0), (Numbers{3, 4}));
  EXPECT_EQ(numbers_of(slices_at(means, 0).indices), Numbers{2});
}

void expect_near(const Numbers& numbers, const Numbers& expected) {
  ASSERT_EQ(numbers.size(), expected.size());
  for (size_t i = 0; i < numbers.size(); ++i)
    EXPECT_NEAR(numbers[i], expected[i], 1e-15 * expected[i]);
}

TEST(Clip, SquaresNeitherOverflowNorVanish) {
  for (const double unit : {1e-320, 1e-200, 1.0, 1e200, 1e307}) {
    const Tensor both = tensor_of(Dtype::f64, {2}, {3 * unit, 4 * unit});
    const Numbers expected = {3 * unit / 2, 4 * unit / 2};
    if (unit > 1e-300)
      expect_near(numbers_at(average(towers_of({both}), {.clip_norm = 2.5 * unit}), 0), expected);
    expect_near(numbers_at(average(towers_of({both}), {.clip_norm = 1}), 0),
                unit < 1 ? numbers_of(both) : Numbers{0.6, 0.8});
    const Tower tower = {gradient(scalar(3 * unit, Dtype::f64)),
                         gradient(scalar(4 * unit, Dtype::f64)), gradient(floats({0}))};
    const Means means = average({tower}, {.clip_global_norm = 2.5 * unit});
    if (unit > 1e-300) expect_near(numbers_at(means, 1), {expected[1]});
  }
}

TEST(Clip, ANormThatIsNotFiniteMakesNans) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tower tower = {gradient(floats({1, infinity})), gradient(scalar(1))};
  const Means means = average({tower, tower}, {.clip_global_norm = 1});
  for (const double number : numbers_at(means, 0)) EXPECT_TRUE(std::isnan(number));
  EXPECT_TRUE(std::isnan(numbers_at(means, 1)[0]));
}

TEST(Clip, NormsAreAboveZero) {
  const std::vector<Tower> towers = towers_of({scalar(1)});
  for (const double wrong : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_TRUE(fails(refusal(towers, {.clip_norm = wrong}), Code::invalid_argument, "clip_norm"));
    EXPECT_TRUE(fails(refusal(towers, {.clip_global_norm = wrong}), Code::invalid_argument,
                      "clip_global_norm"));
  }
  EXPECT_TRUE(
      fails(refusal(towers, {.clip_norm = -1e-9}), Code::invalid_argument, "but -1e-09 is"));
}

}  // namespace
}  // namespace tutti::average_gradients

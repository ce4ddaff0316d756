// Arithmetic on tensors and their parts, against the slow, obvious way.
#include "client/faces/distribute/arithmetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "client/faces/distribute/logical_devices.h"

namespace tutti::distribute {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
Tensor view_of(const std::vector<T>& numbers, Dtype dtype, const Shape& shape) {
  return Tensor::view(dtype, shape, numbers.data());
}

template <class T = float>
std::vector<T> numbers_of(const Tensor& tensor) {
  const T* first = reinterpret_cast<const T*>(tensor.data());
  return {first, first + tensor.count()};
}

// The place of an element of `shape` in a tensor that lacks `axes`.
int64_t place_without(int64_t element, const Shape& shape, const std::vector<size_t>& axes) {
  int64_t place = 0;
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0; element /= shape[axis]) {
    if (std::ranges::count(axes, axis) > 0) continue;
    place += element % shape[axis] * stride;
    stride *= shape[axis];
  }
  return place;
}

TEST(Arithmetic, SumsOverEverySetOfAxes) {
  const Shape shape = {3, 1, 4, 5};
  std::vector<float> numbers(60);
  std::mt19937 random(1);
  for (float& number : numbers) number = static_cast<float>(random() % 1000);
  for (unsigned set = 0; set < 16; ++set) {
    std::vector<size_t> axes;
    for (size_t axis = 0; axis < 4; ++axis)
      if ((set >> axis & 1) != 0) axes.push_back(axis);
    const Tensor sum = sum_over(view_of(numbers, Dtype::f32, shape), axes);
    std::vector<float> want(sum.count());
    for (int64_t i = 0; i < 60; ++i)
      want[static_cast<size_t>(place_without(i, shape, axes))] += numbers[static_cast<size_t>(i)];
    EXPECT_EQ(numbers_of(sum), want) << set;
    EXPECT_EQ(sum.shape().size(), 4 - axes.size());
  }
}

TEST(Arithmetic, SumsOverNothing) {
  const std::vector<float> none;
  EXPECT_THAT(numbers_of(sum_over(view_of(none, Dtype::f32, {0, 2}), {0})), ElementsAre(0, 0));
  EXPECT_EQ(sum_over(view_of(none, Dtype::f32, {0, 2}), {1}).shape(), Shape{0});
  EXPECT_THAT(numbers_of(sum_over(view_of(none, Dtype::f32, {2, 0}), {0, 1})), ElementsAre(0));
}

TEST(Arithmetic, AddsAndSubtractsEveryDtype) {
  const std::vector<int8_t> small = {100, -100};
  const std::vector<int8_t> other = {100, 100};
  const Tensor a = view_of(small, Dtype::i8, {2});
  const Tensor b = view_of(other, Dtype::i8, {2});
  EXPECT_THAT(numbers_of<int8_t>(sum_of({a, b}, Dtype::i8)), ElementsAre(-56, 0));  // Wraps around.
  EXPECT_THAT(numbers_of<int8_t>(subtract(a, b)), ElementsAre(0, 56));
  const std::vector<int64_t> large = {int64_t{1} << 40, 5};
  const std::vector<int64_t> one = {1, 7};
  EXPECT_THAT(
      numbers_of<int64_t>(subtract(view_of(large, Dtype::i64, {2}), view_of(one, Dtype::i64, {2}))),
      ElementsAre((int64_t{1} << 40) - 1, -2));
  const std::vector<double> exact = {1e300, 0.5};
  const std::vector<double> half = {1e299, 0.25};
  EXPECT_THAT(
      numbers_of<double>(subtract(view_of(exact, Dtype::f64, {2}), view_of(half, Dtype::f64, {2}))),
      ElementsAre(1e300 - 1e299, 0.25));
  const std::vector<uint16_t> f16 = {0x4200, 0x3c00};   // 3, 1.
  const std::vector<uint16_t> less = {0x3c00, 0x4000};  // 1, 2.
  EXPECT_THAT(
      numbers_of<uint16_t>(subtract(view_of(f16, Dtype::f16, {2}), view_of(less, Dtype::f16, {2}))),
      ElementsAre(0x4000, 0xbc00));
  const std::vector<uint32_t> zero = {0};
  const std::vector<uint32_t> three = {3};
  EXPECT_THAT(numbers_of<uint32_t>(
                  subtract(view_of(zero, Dtype::u32, {1}), view_of(three, Dtype::u32, {1}))),
              ElementsAre(0xfffffffdU));
}

TEST(Arithmetic, SumsSixteenBitsInThirtyTwo) {
  const std::vector<uint16_t> one = {0x3f80};    // 1 in bf16.
  const std::vector<uint16_t> above = {0x3f81};  // 1 + 2^-7.
  const std::vector<Tensor> both = {view_of(one, Dtype::bf16, {1}),
                                    view_of(above, Dtype::bf16, {1})};
  EXPECT_THAT(numbers_of<uint16_t>(sum_of(both, Dtype::bf16, 2)), ElementsAre(0x3f80));
  EXPECT_THAT(numbers_of(sum_of(both, Dtype::f32)), ElementsAre(2.0078125F));
}

TEST(Arithmetic, JoinsAndCuts) {
  std::vector<float> numbers(24);
  for (size_t i = 0; i < 24; ++i) numbers[i] = static_cast<float>(i);
  const Tensor whole = view_of(numbers, Dtype::f32, {2, 3, 4});
  const Tensor middle = slice_of(whole, {0, 1, 2}, {2, 2, 1});
  EXPECT_THAT(numbers_of(middle), ElementsAre(6, 10, 18, 22));
  for (size_t axis = 0; axis < 3; ++axis) {
    Shape sides = whole.shape();
    Shape begin(3);
    sides[axis] = 1;
    const Tensor first = slice_of(whole, begin, sides);
    begin[axis] = 1;
    sides[axis] = whole.shape()[axis] - 1;
    const Tensor rest = slice_of(whole, begin, sides);
    const std::vector<Tensor> parts = {first, rest};
    EXPECT_EQ(numbers_of(concatenate(parts, axis)), numbers) << axis;
  }
  EXPECT_EQ(slice_of(whole, {0, 0, 0}, {2, 0, 4}).count(), 0);
}

TEST(LogicalDevices, SplitATensorRowByRow) {
  std::vector<float> numbers(8);
  for (size_t i = 0; i < 8; ++i) numbers[i] = static_cast<float>(i);
  const auto parts = split_to_logical_devices(view_of(numbers, Dtype::f32, {2, 4}), {2, 2}, 4);
  ASSERT_TRUE(parts.ok());
  ASSERT_EQ(parts->size(), 4u);
  EXPECT_THAT(numbers_of((*parts)[0]), ElementsAre(0, 1));
  EXPECT_THAT(numbers_of((*parts)[1]), ElementsAre(2, 3));
  EXPECT_THAT(numbers_of((*parts)[2]), ElementsAre(4, 5));
  EXPECT_THAT(numbers_of((*parts)[3]), ElementsAre(6, 7));
  EXPECT_EQ((*parts)[3].shape(), (Shape{1, 2}));
  EXPECT_EQ(split_to_logical_devices(view_of(numbers, Dtype::f32, {}), {}, 1)->size(), 1u);
}

TEST(LogicalDevices, RefuseWhatCannotBeSplit) {
  const std::vector<float> numbers(8);
  const Tensor tensor = view_of(numbers, Dtype::f32, {2, 4});
  const auto refused = [&](const std::vector<int64_t>& parts, const std::string& text) {
    const Status status = split_to_logical_devices(tensor, parts, 4).status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr(text));
  };
  refused({4}, "give one for each axis");
  refused({1, 3}, "not divisible");
  refused({2, 1}, "must be the number of logical devices of a replica, 4");
  refused({2, 4}, "must be the number of logical devices");
  refused({-2, -2}, "must be positive");
  EXPECT_TRUE(validate_logical_device(3, 4).ok());
  for (const int wrong : {-1, 4})
    EXPECT_EQ(validate_logical_device(wrong, 4).code(), Code::invalid_argument);
}

TEST(Shapes, AreChecked) {
  EXPECT_TRUE(count_of({}, Dtype::f32).ok());
  EXPECT_TRUE(count_of({0, int64_t{1} << 62}, Dtype::u8).ok());
  EXPECT_FALSE(count_of({-1}, Dtype::f32).ok());
  EXPECT_FALSE(count_of({int64_t{1} << 31, int64_t{1} << 31}, Dtype::f64).ok());
  EXPECT_FALSE(count_of({int64_t{1} << 62, 4}, Dtype::u8).ok());
}

}  // namespace
}  // namespace tutti::distribute

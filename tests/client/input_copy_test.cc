// Inputs on their way to shared memory: copied, or multiplied by a factor.
#include "client/operations/input_copy.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>

#include "tests/support/values.h"

namespace tutti::client {
namespace {

using testing::Bytes;
using testing::get;
using testing::put;

constexpr Dtype kFloats[] = {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16};
constexpr size_t kCounts[] = {0, 1, 7, 1023, 1024, 1025, 5000};

Bytes tensor(Dtype dtype, const std::vector<double>& values) {
  Bytes made(values.size() * size_of(dtype));
  for (size_t i = 0; i < values.size(); ++i) put(made, dtype, i, values[i]);
  return made;
}

// The one element that `value` becomes.
double scaled(Dtype dtype, double value, double factor) {
  const Bytes from = tensor(dtype, {value});
  Bytes to(from.size());
  InputCopy(dtype, factor)(to.data(), from.data(), from.size());
  return get(to, dtype, 0);
}

TEST(InputCopy, CopiesBytesByDefaultAndWithTheFactorOne) {
  Bytes from(5001);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 37);
  Bytes to(from.size());
  const InputCopy copy;
  EXPECT_FALSE(copy.scales());
  copy(to.data(), from.data(), from.size());
  EXPECT_EQ(to, from);
  EXPECT_FALSE(InputCopy(Dtype::f32, 1).scales());
  EXPECT_TRUE(InputCopy(Dtype::f32, 0).scales());
  EXPECT_TRUE(InputCopy(Dtype::f32, std::nan("")).scales());
}

// At any alignment, apart and in place, and nothing else.
TEST(InputCopy, MultipliesEveryElement) {
  for (const Dtype dtype : kFloats)
    for (const size_t count : kCounts)
      for (const size_t offset : {0, 1, 2, 8}) {
        std::vector<double> values(count);
        std::vector<double> wanted(count);
        for (size_t i = 0; i < count; ++i) {
          values[i] = static_cast<double>(1 + i % 64);
          wanted[i] = values[i] * -1.5;
        }
        const Bytes from = tensor(dtype, values);
        const Bytes right = tensor(dtype, wanted);
        Bytes padded(offset + from.size() + 9, std::byte{0xa5});
        Bytes expected = padded;
        std::ranges::copy(right, expected.begin() + static_cast<ptrdiff_t>(offset));
        const InputCopy copy(dtype, -1.5);
        copy(padded.data() + offset, from.data(), from.size());
        EXPECT_EQ(padded, expected) << name_of(dtype) << " " << count << " at " << offset;
        std::ranges::copy(from, padded.begin() + static_cast<ptrdiff_t>(offset));
        copy(padded.data() + offset, padded.data() + offset, from.size());
        EXPECT_EQ(padded, expected) << name_of(dtype) << " " << count << " in place";
      }
}

TEST(InputCopy, EachDtypeIsMultipliedInItsOwnPrecision) {
  EXPECT_EQ(scaled(Dtype::f64, 3, 0.1), 3 * 0.1);
  EXPECT_EQ(scaled(Dtype::f32, 3, 0.1), 3 * 0.1f);
  // A third in f32 times 3 is 1, a third in 16 bits is not.
  EXPECT_EQ(scaled(Dtype::f16, 3, 1.0 / 3), 1);
  EXPECT_EQ(scaled(Dtype::bf16, 3, 1.0 / 3), 1);
  // Ties of 16-bit floats go to the even neighbour.
  EXPECT_EQ(scaled(Dtype::f16, 1 + 0x1p-10, 1.5), 1.5 + 0x2p-10);
  EXPECT_EQ(scaled(Dtype::f16, 1 + 0x3p-10, 1.5), 1.5 + 0x4p-10);
  EXPECT_EQ(scaled(Dtype::bf16, 1 + 0x1p-7, 1.5), 1.5 + 0x2p-7);
}

TEST(InputCopy, FactorsMayBeInfiniteOrNoNumber) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(scaled(Dtype::f32, -2, kInfinity), -kInfinity);
  EXPECT_EQ(scaled(Dtype::f64, 2, kInfinity), kInfinity);
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    EXPECT_TRUE(std::isnan(scaled(dtype, 0, kInfinity)));
    EXPECT_TRUE(std::isnan(scaled(dtype, 1, std::nan(""))));
  }
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    const Bytes one = tensor(dtype, {1});
    Bytes to(2);
    InputCopy(dtype, std::nan(""))(to.data(), one.data(), 2);
    uint16_t bits = 0;
    std::memcpy(&bits, to.data(), 2);
    EXPECT_GT(bits & 0x7fff, dtype == Dtype::f16 ? 0x7c00 : 0x7f80);
  }
}

// Both values are above the exact ones.
TEST(InputCopy, TheCallersRoundingChangesNoBits) {
  ASSERT_EQ(std::fesetround(FE_DOWNWARD), 0);
  const double tenth = scaled(Dtype::f32, 1, 0.1);
  const double product = scaled(Dtype::f64, 0.1, 0.1);
  EXPECT_EQ(std::fegetround(), FE_DOWNWARD) << "and the caller keeps it";
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(tenth, 0.1f);
  EXPECT_EQ(product, 0.1 * 0.1);
}

}  // namespace
}  // namespace tutti::client

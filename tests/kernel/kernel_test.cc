// Every kernel this processor can run, against the one every processor of its architecture runs:
// same bits, into every target, wherever operands lie. tests/device/reduce_test.cc compares the
// fastest with the slow, obvious way.
#include "daemon/kernel/kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/support/values.h"

namespace tutti {
namespace {

using testing::get;

constexpr size_t kGuard = 64;
constexpr std::byte kFill{0xa5};
const std::vector<size_t> kCounts = {1, 7, 63, 64, 255, 300, 1025, 4099};

// One fold. `in_place` targets are the first sources, the `apart` others are not sources.
struct Case {
  Dtype from = Dtype::f32;
  Dtype to = Dtype::f32;
  Op op = Op::sum;
  size_t sources = 2;
  size_t in_place = 0;
  size_t apart = 1;
  size_t count = 1025;
  uint32_t divisor = 1;
  bool past_cache = false;
  size_t offset = 0;   // Bytes behind an aligned address, of every operand.
  size_t stagger = 0;  // And so much more for each target apart than for the one before.
};

std::string describe(const Case& what) {
  return std::string(name_of(what.from)) + " to " + std::string(name_of(what.to)) + " " +
         std::string(name_of(what.op)) + ", " + std::to_string(what.sources) + " sources, " +
         std::to_string(what.in_place) + " in place, " + std::to_string(what.apart) +
         " apart, count " + std::to_string(what.count) + ", divisor " +
         std::to_string(what.divisor) + ", offset " + std::to_string(what.offset) +
         (what.past_cache ? ", past the cache" : "");
}

// Memory of its own at an offset behind an aligned address, guarded on both sides.
class Block {
 public:
  Block(size_t bytes, size_t offset) : bytes_(bytes), all_(bytes + offset + 4 * kGuard, kFill) {
    const auto at = reinterpret_cast<uintptr_t>(all_.data());
    place_ = 2 * kGuard - at % kGuard + offset;
  }
  std::byte* data() { return all_.data() + place_; }
  std::vector<std::byte> values() const {
    return {all_.begin() + static_cast<ptrdiff_t>(place_),
            all_.begin() + static_cast<ptrdiff_t>(place_ + bytes_)};
  }
  bool guarded() const {
    size_t untouched = 0;
    for (size_t i = 0; i < all_.size(); ++i)
      untouched += (i < place_ || i >= place_ + bytes_) && all_[i] == kFill;
    return untouched == all_.size() - bytes_;
  }

 private:
  size_t bytes_;
  std::vector<std::byte> all_;
  size_t place_ = 0;
};

void fill(Block& block, size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  for (size_t i = 0; i < bytes; ++i) block.data()[i] = static_cast<std::byte>(random());
}

// What each target holds afterwards.
std::vector<std::vector<std::byte>> run(Kernel kernel, const Case& what) {
  const size_t from_bytes = what.count * size_of(what.from);
  std::vector<Block> blocks;
  std::vector<Operand> sources;
  std::vector<Target> targets;
  for (size_t s = 0; s < what.sources; ++s) {
    fill(blocks.emplace_back(from_bytes, what.offset), from_bytes, static_cast<unsigned>(s));
    sources.push_back({blocks.back().data(), what.from});
  }
  for (size_t t = 0; t < what.in_place; ++t) targets.push_back({blocks[t].data(), what.to});
  for (size_t t = 0; t < what.apart; ++t) {
    blocks.emplace_back(what.count * size_of(what.to), what.offset + t * what.stagger);
    targets.push_back({blocks.back().data(), what.to});
  }
  kernel({targets.data(), targets.size(), sources.data(), sources.size(), what.count, what.op,
          what.divisor, what.past_cache});
  std::vector<std::vector<std::byte>> results;
  for (size_t b = 0; b < blocks.size(); ++b) {
    EXPECT_TRUE(blocks[b].guarded()) << describe(what);
    if (b < what.in_place || b >= what.sources) results.push_back(blocks[b].values());
  }
  return results;
}

// A conversion alone may give any NaN; a fold of several sources gives the one.
size_t differences(Dtype dtype, const std::vector<std::byte>& a, const std::vector<std::byte>& b,
                   bool is_fold) {
  size_t different = 0;
  const size_t size = size_of(dtype);
  for (size_t i = 0; i < a.size() / size; ++i) {
    const bool same = std::memcmp(&a[i * size], &b[i * size], size) == 0;
    different +=
        !same && (is_fold || !(std::isnan(get(a, dtype, i)) && std::isnan(get(b, dtype, i))));
  }
  return different;
}

void check(const Case& what) {
  const Kernels kernels = usable_kernels();
  Case plain = what;  // One target, apart.
  plain.in_place = 0;
  plain.apart = 1;
  plain.past_cache = false;
  const std::vector<std::byte> expected = run(kernels.at[kernels.count - 1], plain)[0];
  for (size_t k = 0; k < kernels.count; ++k)
    for (const std::vector<std::byte>& result : run(kernels.at[k], what))
      EXPECT_EQ(differences(what.to, result, expected, what.sources > 1), 0u)
          << "kernel " << k << ": " << describe(what);
}

TEST(Kernels, TheFastestIsChosen) {
  const Kernels kernels = usable_kernels();
  ASSERT_GE(kernels.count, 1u);
  EXPECT_EQ(choose_kernel(), kernels.at[0]);
}

TEST(Kernels, EveryTypeOperationAndCountIntoSeveralTargets) {
  for (int dtype = 0; dtype < kDtypes; ++dtype)
    for (int op = 0; op < kOps; ++op)
      for (const size_t count : kCounts)
        for (const size_t sources : {1, 2, 3, 9}) {
          const auto type = static_cast<Dtype>(dtype);
          if (is_bitwise(static_cast<Op>(op)) && is_floating(type)) continue;
          check({.from = type,
                 .to = type,
                 .op = static_cast<Op>(op),
                 .sources = sources,
                 .in_place = sources,
                 .apart = count % 3,
                 .count = count});
        }
}

TEST(Kernels, AnyAlignmentAlsoPastTheCache) {
  for (int dtype = 0; dtype < kDtypes; ++dtype)
    for (const size_t offset : {0, 1, 2, 4, 8, 12, 16, 32, 61})
      for (const size_t apart : {1, 3})
        for (const Op op : {Op::sum, Op::bxor}) {
          const auto type = static_cast<Dtype>(dtype);
          if (!applies_to(op, type)) continue;
          check({.from = type,
                 .to = type,
                 .op = op,
                 .apart = apart,
                 .past_cache = true,
                 .offset = offset});
        }
}

TEST(Kernels, TargetsOfSeveralAlignments) {
  for (const Dtype type : {Dtype::f32, Dtype::bf16, Dtype::u8})
    for (const size_t stagger : {1, 4, 16, 32})
      for (const bool past_cache : {false, true})
        check({.from = type, .to = type, .apart = 4, .past_cache = past_cache, .stagger = stagger});
}

TEST(Kernels, FloatsAreDivided) {
  for (const Dtype type : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16})
    for (const uint32_t divisor : {2u, 3u, 1000u})
      check({.from = type,
             .to = type,
             .op = Op::mean,
             .sources = 4,
             .in_place = 4,
             .divisor = divisor});
}

// ---- By value: many times the same few values, so that whole packs and what is behind are both
// seen. ----

template <class T>
void expect_folds(Dtype dtype, Op op, const std::vector<std::vector<T>>& sources,
                  const std::vector<T>& expected) {
  constexpr size_t kTimes = 401;
  const auto repeated = [](const std::vector<T>& values) {
    std::vector<T> all;
    for (size_t i = 0; i < kTimes; ++i) all.insert(all.end(), values.begin(), values.end());
    return all;
  };
  std::vector<std::vector<T>> all;
  std::vector<Operand> operands;
  for (const std::vector<T>& source : sources) all.push_back(repeated(source));
  for (const std::vector<T>& source : all) operands.push_back({source.data(), dtype});
  const Kernels kernels = usable_kernels();
  for (size_t k = 0; k < kernels.count; ++k) {
    std::vector<T> result(all[0].size());
    const Target target{result.data(), dtype};
    kernels.at[k]({&target, 1, operands.data(), operands.size(), result.size(), op, 1, false});
    EXPECT_EQ(result, repeated(expected))
        << "kernel " << k << ": " << name_of(dtype) << " " << name_of(op);
  }
}

template <class T>
void expect_unsigned(Dtype dtype) {
  constexpr T most = std::numeric_limits<T>::max();
  constexpr T half = most / 2 + 1;  // A signed type's least.
  const std::vector<std::vector<T>> sources = {{most, half, 1, 0, 3}, {2, 1, half, most, 5}};
  expect_folds<T>(dtype, Op::sum, sources, {1, half + 1, half + 1, most, 8});
  expect_folds<T>(dtype, Op::prod, sources, {most - 1, half, half, 0, 15});
  expect_folds<T>(dtype, Op::min, sources, {2, 1, 1, 0, 3});
  expect_folds<T>(dtype, Op::max, sources, {most, half, half, most, 5});
  expect_folds<T>(dtype, Op::band, sources, {2, 0, 0, 0, 1});
  expect_folds<T>(dtype, Op::bor, sources, {most, half + 1, half + 1, most, 7});
  expect_folds<T>(dtype, Op::bxor, sources, {most - 2, half + 1, half + 1, most, 6});
}

TEST(Kernels, UnsignedIntegersWrapAndTheirGreatestExceedTheSignedOnes) {
  expect_unsigned<uint8_t>(Dtype::u8);
  expect_unsigned<uint16_t>(Dtype::u16);
  expect_unsigned<uint32_t>(Dtype::u32);
  expect_unsigned<uint64_t>(Dtype::u64);
}

TEST(Kernels, SixteenBitIntegersHaveASign) {
  const std::vector<std::vector<int16_t>> sources = {{32767, -1, -300, 0, 256}, {1, 2, 7, -5, 256}};
  expect_folds<int16_t>(Dtype::i16, Op::sum, sources, {-32768, 1, -293, -5, 512});
  expect_folds<int16_t>(Dtype::i16, Op::prod, sources, {32767, -2, -2100, 0, 0});
  expect_folds<int16_t>(Dtype::i16, Op::min, sources, {1, -1, -300, -5, 256});
  expect_folds<int16_t>(Dtype::i16, Op::max, sources, {32767, 2, 7, 0, 256});
  expect_folds<int16_t>(Dtype::i16, Op::band, sources, {1, 2, 4, 0, 256});
  expect_folds<int16_t>(Dtype::i16, Op::bor, sources, {32767, -1, -297, -5, 256});
  expect_folds<int16_t>(Dtype::i16, Op::bxor, sources, {32766, -3, -301, -5, 0});
}

// Whichever bytes stand for true.
TEST(Kernels, ResultsOfBoolsAreZeroOrOne) {
  const std::vector<std::vector<uint8_t>> sources = {
      {0, 0, 1, 2, 255, 128}, {0, 1, 0, 4, 1, 0}, {0, 64, 0, 8, 255, 0}};
  for (const Op op : {Op::sum, Op::max, Op::bor})
    expect_folds<uint8_t>(Dtype::boolean, op, sources, {0, 1, 1, 1, 1, 1});
  for (const Op op : {Op::prod, Op::min, Op::band})
    expect_folds<uint8_t>(Dtype::boolean, op, sources, {0, 0, 0, 1, 1, 0});
  expect_folds<uint8_t>(Dtype::boolean, Op::bxor, sources, {0, 0, 1, 1, 1, 1});
  expect_folds<uint8_t>(Dtype::boolean, Op::bxor, {sources[0], sources[1]}, {0, 1, 1, 0, 0, 1});
  for (const Op op : {Op::sum, Op::band, Op::bxor})
    expect_folds<uint8_t>(Dtype::boolean, op, {sources[0]}, {0, 0, 1, 1, 1, 1});
}

TEST(CopyBytes, CopiesAnyLengthFromAnywhereAndNothingElse) {
  std::mt19937 random(7);
  std::vector<unsigned char> source(5000);
  for (unsigned char& byte : source) byte = static_cast<unsigned char>(random());
  for (const size_t bytes : {0, 1, 255, 256, 257, 511, 512, 1000, 4096})
    for (const size_t from : {0, 1, 16, 63})
      for (const size_t to : {0, 1, 16, 63}) {
        std::vector<unsigned char> target(5000, 0xa5);
        std::vector<unsigned char> wanted = target;
        std::copy_n(source.begin() + from, bytes, wanted.begin() + to);
        copy_bytes(target.data() + to, source.data() + from, bytes);
        ASSERT_EQ(target, wanted) << bytes << " bytes from " << from << " to " << to;
      }
  copy_bytes(nullptr, nullptr, 0);
}

TEST(Kernels, SixteenBitFloatsBecomeF32AndBack) {
  for (const Dtype half : {Dtype::f16, Dtype::bf16})
    for (const size_t sources : {1, 2, 5})
      for (const bool past_cache : {false, true}) {
        check({.from = half, .sources = sources, .apart = 2, .past_cache = past_cache});
        check({.to = half, .sources = sources, .apart = 2, .past_cache = past_cache});
      }
}

}  // namespace
}  // namespace tutti

// What every device promises about reductions, against the slow, obvious way.
#include <array>
#include <bit>

#include "daemon/device/cuda_job.h"
#include "tests/device/fixture.h"
#include "tests/support/rank_order.h"

namespace tutti {
namespace {

using namespace testing;

constexpr std::array kFloats = {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16};
constexpr std::array kFloatOps = {Op::sum, Op::mean, Op::min, Op::max, Op::prod, Op::premul_sum};
constexpr std::array kAllOps = {Op::sum,  Op::mean, Op::min,  Op::max,       Op::prod,
                                Op::band, Op::bor,  Op::bxor, Op::premul_sum};
static_assert(kAllOps.size() == kOps);
constexpr std::array<size_t, 5> kCounts = {0, 1, 3, 1000, 65537};
constexpr size_t kMostSources = 9;

// One reduction, on the device and the slow way.
struct Case {
  Dtype target = Dtype::f32;
  std::vector<TensorValues> sources;
  size_t count = 0;
  Op op = Op::sum;
  uint32_t divisor = 1;
  std::vector<size_t> in_place = {};  // Sources that are targets, in this order.
  size_t apart = 0;                   // Further targets; one where no source is.
  bool past_cache = false;
  size_t offset = 0;                 // Bytes behind an aligned address, of every operand.
  std::vector<double> factors = {};  // Of the sources; empty: none.
};

class ReduceTest : public DeviceTest {
 protected:
  // The device's result, the same in every target, or what it answered.
  Result<TensorValues> reduce(const Case& what) {
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<Operand> operands;
    for (const TensorValues& source : what.sources) {
      buffers.push_back(upload(source.bytes, what.offset));
      operands.push_back({buffers.back()->data() + what.offset, source.dtype});
    }
    const size_t bytes = what.count * size_of(what.target);
    std::vector<Target> targets;
    for (const size_t source : what.in_place)
      targets.push_back({buffers[source]->data() + what.offset, what.target});
    const size_t apart = std::max<size_t>(what.apart, what.in_place.empty() ? 1 : 0);
    for (size_t t = 0; t < apart; ++t) {
      buffers.push_back(upload(Bytes(bytes + 2 * kGuard, kFill), what.offset));
      targets.push_back({buffers.back()->data() + what.offset + kGuard, what.target});
    }
    Status status =
        device->reduce(*stream, targets, operands,
                       {what.count, what.op, what.divisor, what.past_cache, what.factors});
    if (status.ok()) status = device->wait(*stream);
    if (!status.ok()) return status;
    return result_of(targets, what.in_place.size(), bytes);
  }

  // Floats have no bitwise operations. A GPU refuses what is not aligned.
  void check(const Case& what) {
    if (is_bitwise(what.op) && is_floating(what.target)) return;
    const Result<TensorValues> result = reduce(what);
    if (GetParam() != "host" && what.count != 0 && !is_aligned(what)) {
      EXPECT_EQ(result.status().code(), Code::invalid_argument) << "offset " << what.offset;
      return;
    }
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    std::vector<TensorValues> scaled = what.sources;
    for (size_t s = 0; s < what.factors.size(); ++s) scale_slowly(scaled[s], what.factors[s]);
    const TensorValues expected =
        reduced(what.target, {scaled.begin(), scaled.end()}, what.count, what.op, what.divisor);
    std::vector<size_t> wrong;
    for (size_t i = 0; i < what.count; ++i)
      if (!same_value(*result, expected, i)) wrong.push_back(i);
    EXPECT_TRUE(wrong.empty()) << wrong.size() << " are wrong, the first at " << wrong[0] << ": "
                               << bytes_at(*result, wrong[0]) << " instead of "
                               << bytes_at(expected, wrong[0]) << "; " << name_of(what.target)
                               << " " << name_of(what.op) << ", " << what.sources.size()
                               << " sources, count " << what.count << ", divisor " << what.divisor
                               << ", in place " << ::testing::PrintToString(what.in_place)
                               << ", apart " << what.apart << ", offset " << what.offset;
  }

 private:
  TensorValues result_of(const std::vector<Target>& targets, size_t in_place, size_t bytes) {
    const auto at = [&](size_t t) { return static_cast<const std::byte*>(targets[t].data); };
    TensorValues result = {targets[0].dtype, download(at(0), bytes)};
    for (size_t t = 1; t < targets.size(); ++t)
      EXPECT_TRUE(download(at(t), bytes) == result.bytes) << "target " << t << " differs";
    for (size_t t = in_place; t < targets.size(); ++t) expect_guards(at(t), bytes);
    return result;
  }

  static bool is_aligned(const Case& what) {
    const auto fits = [&](const TensorValues& of) { return what.offset % size_of(of.dtype) == 0; };
    return what.offset % size_of(what.target) == 0 && std::ranges::all_of(what.sources, fits);
  }

  static std::string bytes_at(const TensorValues& values, size_t i) {
    const size_t size = size_of(values.dtype);
    return ::testing::PrintToString(
        Bytes(values.bytes.begin() + i * size, values.bytes.begin() + (i + 1) * size));
  }

  // Nothing may be written beside a target.
  void expect_guards(const std::byte* to, size_t bytes) {
    const Bytes guard(kGuard, kFill);
    EXPECT_EQ(download(to - kGuard, kGuard), guard);
    EXPECT_EQ(download(to + bytes, kGuard), guard);
  }

  static constexpr size_t kGuard = 64;
  static constexpr std::byte kFill{0xa5};
};

std::vector<TensorValues> random_sources(Dtype dtype, size_t sources, size_t count) {
  std::vector<TensorValues> made;
  for (size_t s = 0; s < sources; ++s)
    made.push_back(random_values(dtype, count, static_cast<unsigned>(100 * s + count)));
  return made;
}

TEST_P(ReduceTest, EveryTypeOperationNumberOfSourcesAndCount) {
  for (int d = 0; d < kDtypes; ++d)
    for (const size_t count : kCounts)
      for (size_t n = 1; n <= kMostSources; ++n) {
        const auto dtype = static_cast<Dtype>(d);
        const std::vector<TensorValues> sources = random_sources(dtype, n, count);
        for (const Op op : kAllOps)
          check({.target = dtype, .sources = sources, .count = count, .op = op});
      }
}

// So many that a thread of a GPU takes several packs at once, then some one by one.
TEST_P(ReduceTest, TensorsOfManyPacks) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64, Dtype::u8, Dtype::i16}) {
    const auto width = 16 / size_of(dtype);
    const size_t count = (kCudaSinglePacks + 5 * kCudaThreads + 77) * width + width / 2 + 1;
    check({.target = dtype,
           .sources = random_sources(dtype, 2, count),
           .count = count,
           .in_place = {1},
           .apart = 1});
  }
  const size_t count = (kCudaSinglePacks + 3 * kCudaThreads + 1) * 8 + 5;
  std::vector<TensorValues> sources = random_sources(Dtype::bf16, 2, count);
  sources.push_back(random_sources(Dtype::f32, 1, count)[0]);
  check({.target = Dtype::f32, .sources = sources, .count = count});
}

TEST_P(ReduceTest, ATargetMayBeAnySource) {
  for (int d = 0; d < kDtypes; ++d)
    for (const size_t n : {1, 2, 3, 4, 5, 9}) {
      const auto dtype = static_cast<Dtype>(d);
      const std::vector<TensorValues> sources = random_sources(dtype, n, 5001);
      for (const Op op : {Op::sum, Op::max, Op::bxor})
        for (size_t source = 0; source < n; ++source)
          for (const size_t apart : {0, 2})
            check({.target = dtype,
                   .sources = sources,
                   .count = 5001,
                   .op = op,
                   .in_place = {source},
                   .apart = apart});
    }
}

// In place into all sources, forwards and backwards, and into some and elsewhere.
TEST_P(ReduceTest, SeveralTargets) {
  for (int d = 0; d < kDtypes; ++d)
    for (const size_t count : {1, 15, 1000, 65539}) {
      const auto dtype = static_cast<Dtype>(d);
      const std::vector<TensorValues> sources = random_sources(dtype, 4, count);
      for (const Op op : kAllOps) {
        const auto into = [&](const std::vector<size_t>& in_place, size_t apart) {
          check({.target = dtype,
                 .sources = sources,
                 .count = count,
                 .op = op,
                 .in_place = in_place,
                 .apart = apart});
        };
        into({0, 1, 2, 3}, 0);
        into({3, 2, 1, 0}, 0);
        into({2, 0}, 3);
        into({}, 5);
      }
    }
}

TEST_P(ReduceTest, SeveralTargetsOfOneSource) {
  for (int d = 0; d < kDtypes; ++d)
    for (const uint32_t divisor : {1u, 4u}) {
      const auto dtype = static_cast<Dtype>(d);
      if (divisor != 1 && !is_floating(dtype)) continue;
      check({.target = dtype,
             .sources = random_sources(dtype, 1, 5003),
             .count = 5003,
             .divisor = divisor,
             .in_place = {0},
             .apart = 3});
    }
}

TEST_P(ReduceTest, PastTheCacheItIsTheSame) {
  for (int d = 0; d < kDtypes; ++d)
    for (const size_t offset : {0, 2, 3, 16, 64})
      for (const size_t apart : {1, 3}) {
        const auto dtype = static_cast<Dtype>(d);
        for (const size_t n : {1, 2, 5})
          check({.target = dtype,
                 .sources = random_sources(dtype, n, 20'011),
                 .count = 20'011,
                 .apart = apart,
                 .past_cache = true,
                 .offset = offset});
      }
}

TEST_P(ReduceTest, FloatsAreDividedAfterTheLastSource) {
  for (const Dtype dtype : kFloats)
    for (const size_t n : {1, 2, 3, 5})
      for (const uint32_t divisor : {2u, 3u, 7u, 1000u})
        check({.target = dtype,
               .sources = random_sources(dtype, n, 3001),
               .count = 3001,
               .op = Op::mean,
               .divisor = divisor});
}

TEST_P(ReduceTest, FactorsMultiplyEachSource) {
  const std::vector<double> factors = {1.0 / 3, 1, -2.5, 0, 1e-30, 7e37, 1.0 + 0x1p-40};
  for (const Dtype dtype : kFloats)
    for (const size_t count : kCounts)
      for (const size_t n : {size_t{1}, size_t{2}, factors.size()})
        for (const size_t offset : {0, 2})
          check({.target = dtype,
                 .sources = random_sources(dtype, n, count),
                 .count = count,
                 .op = Op::premul_sum,
                 .apart = 2,
                 .offset = offset,
                 .factors = {factors.begin(), factors.begin() + static_cast<ptrdiff_t>(n)}});
}

TEST_P(ReduceTest, FactorsWhereASourceIsTheTarget) {
  for (const Dtype dtype : kFloats)
    check({.target = dtype,
           .sources = random_sources(dtype, 3, 5000),
           .count = 5000,
           .op = Op::premul_sum,
           .in_place = {1},
           .factors = {0.1, 0.3, 0.7}});
}

// 1 + 2^-10 and 3 / 2 give a tie of f16, which goes to the even neighbour before the sum.
TEST_P(ReduceTest, AScaledSixteenBitFloatIsRoundedBeforeTheSum) {
  std::vector<TensorValues> sources(2, TensorValues(Dtype::f16, 1));
  sources[0].set(0, 1 + 0x1p-10);
  sources[1].set(0, 0x1p-11);
  const Result<TensorValues> sum = reduce({.target = Dtype::f32,
                                           .sources = sources,
                                           .count = 1,
                                           .op = Op::premul_sum,
                                           .factors = {1.5, 1}});
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ((*sum).at(0), 1.5 + 0x2p-10 + 0x1p-11);
}

TEST_P(ReduceTest, SixteenBitFloatsMeetF32) {
  for (const Dtype half : {Dtype::f16, Dtype::bf16})
    for (const Dtype target : {half, Dtype::f32})
      for (unsigned kinds = 0; kinds < 32; ++kinds)
        for (const size_t n : {1, 2, 5}) {
          std::vector<TensorValues> sources;
          for (size_t s = 0; s < n; ++s)
            sources.push_back(
                random_values((kinds >> s & 1) != 0 ? half : Dtype::f32, 2003, 7 * s + kinds));
          check({.target = target,
                 .sources = sources,
                 .count = 2003,
                 .op = Op::mean,
                 .divisor = kinds % 2 + 1});
        }
}

TEST_P(ReduceTest, AnyAlignment) {
  for (int d = 0; d < kDtypes; ++d)
    for (const size_t offset : {1, 2, 4, 12, 4097, (1 << 20) + 3}) {
      const auto dtype = static_cast<Dtype>(d);
      for (const size_t n : {1, 2, 6})
        for (const Op op : {Op::sum, Op::bxor})
          check({.target = dtype,
                 .sources = random_sources(dtype, n, 4001),
                 .count = 4001,
                 .op = op,
                 .offset = offset});
    }
}

// One source converts: every 16-bit value to f32 and back, with the bits of every number kept.
TEST_P(ReduceTest, EverySixteenBitValueBecomesF32AndBack) {
  for (const Dtype half : {Dtype::f16, Dtype::bf16}) {
    TensorValues all(half, 65536);
    for (unsigned bits = 0; bits < 65536; ++bits)
      put_as(all.bytes.data() + 2 * bits, static_cast<uint16_t>(bits));
    const Result<TensorValues> wide =
        reduce({.target = Dtype::f32, .sources = {all}, .count = 65536});
    ASSERT_TRUE(wide.ok()) << wide.status().to_string();
    check({.target = Dtype::f32, .sources = {all}, .count = 65536});
    const Result<TensorValues> back = reduce({.target = half, .sources = {*wide}, .count = 65536});
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    for (size_t i = 0; i < 65536; ++i) ASSERT_TRUE(same_value(*back, all, i)) << name_of(half) << i;
  }
}

// Every tie between two 16-bit neighbours, its two f32 neighbours, and random f32 bits.
TEST_P(ReduceTest, F32IsRoundedToTheNearestSixteenBitFloatTiesToEven) {
  for (const Dtype half : {Dtype::f16, Dtype::bf16}) {
    std::vector<float> values;
    for (unsigned bits = 0; bits < 0x7fff; ++bits) {
      const double low = decode_half(half, static_cast<uint16_t>(bits));
      const double high = decode_half(half, static_cast<uint16_t>(bits + 1));
      const float tie = static_cast<float>(std::isinf(high) ? low * 1.0004885 : (low + high) / 2);
      for (const float value : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, INFINITY)})
        values.insert(values.end(), {value, -value});
    }
    std::mt19937 random(5);
    for (int i = 0; i < 200'000; ++i)
      values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
    TensorValues source(Dtype::f32, values.size());
    std::memcpy(source.bytes.data(), values.data(), source.bytes.size());
    check({.target = half, .sources = {source}, .count = values.size()});
  }
}

TEST_P(ReduceTest, IntegersWrap) {
  TensorValues ones(Dtype::i32, 1);
  TensorValues most(Dtype::i32, 1);
  ones.set(0, 1);
  most.set(0, std::numeric_limits<int32_t>::max());
  const Result<TensorValues> sum =
      reduce({.target = Dtype::i32, .sources = {most, ones}, .count = 1});
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ((*sum).at(0), std::numeric_limits<int32_t>::min());
}

TEST_P(ReduceTest, SixteenBitSumsAreRoundedOnce) {
  // 2048 + 1 + 1 is 2050 in f32; rounded after each step, f16 would stay at 2048.
  std::vector<TensorValues> sources(3, TensorValues(Dtype::f16, 1));
  sources[0].set(0, 2048);
  sources[1].set(0, 1);
  sources[2].set(0, 1);
  const Result<TensorValues> sum = reduce({.target = Dtype::f16, .sources = sources, .count = 1});
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ((*sum).at(0), 2050);
}

// Whichever it was: it has neither sign nor payload.
TEST_P(ReduceTest, ANaNInAnySourceWins) {
  for (const Dtype dtype : kFloats)
    for (const Op op : kFloatOps)
      for (size_t place = 0; place < 3; ++place) {
        std::vector<TensorValues> sources(3, TensorValues(dtype, 33));
        std::ranges::fill(sources[place].bytes, std::byte{0xff});
        Bytes expected(33 * size_of(dtype));
        for (size_t i = 0; i < 33; ++i) testing::put_nan(expected, dtype, i);
        const Result<TensorValues> result =
            reduce({.target = dtype, .sources = sources, .count = 33, .op = op});
        ASSERT_TRUE(result.ok());
        EXPECT_EQ((*result).bytes, expected) << name_of(dtype) << " " << name_of(op);
      }
}

TEST_P(ReduceTest, RefusesTargetsThatDiffer) {
  const TensorValues f32 = random_values(Dtype::f32, 4, 1);
  const std::unique_ptr<Buffer> from = upload(f32.bytes);
  const std::unique_ptr<Buffer> to = upload(f32.bytes);
  const Operand source{from->data(), Dtype::f32};
  const std::array<Target, 2> mixed = {Target{from->data(), Dtype::f32},
                                       Target{to->data(), Dtype::f16}};
  const Reduction four = {.count = 4};
  EXPECT_EQ(device->reduce(*stream, mixed, {&source, 1}, four),
            invalid_argument("the targets differ in type"));
  EXPECT_EQ(device->reduce(*stream, {}, {&source, 1}, four),
            invalid_argument("a reduction needs at least one target"));
}

TEST_P(ReduceTest, RefusesWhatCannotBe) {
  const TensorValues f32 = random_values(Dtype::f32, 4, 1);
  const TensorValues f16 = random_values(Dtype::f16, 4, 1);
  const TensorValues bf16 = random_values(Dtype::bf16, 4, 1);
  const TensorValues i32 = random_values(Dtype::i32, 4, 1);
  const auto message = [&](const Case& what) {
    const Status status = reduce(what).status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    return status.message();
  };
  EXPECT_EQ(message({.count = 4}), "a reduction needs at least one source");
  EXPECT_EQ(message({.sources = {f32, i32}, .count = 4}), "cannot reduce f32 with i32");
  EXPECT_EQ(message({.sources = {f16, bf16}, .count = 4}), "cannot reduce f16 with bf16");
  EXPECT_EQ(message({.target = Dtype::f64, .sources = {f32}, .count = 4}),
            "cannot reduce f64 with f32");
  EXPECT_EQ(message({.target = Dtype::i32, .sources = {i32}, .count = 4, .divisor = 2}),
            "cannot divide i32 by 2");
  EXPECT_EQ(message({.sources = {f32}, .count = 4, .divisor = 0}), "cannot divide f32 by 0");
  EXPECT_EQ(message({.sources = {f32}, .count = 4, .op = Op::bxor}), "cannot reduce f32 with bxor");
  EXPECT_EQ(message({.sources = {f32}, .count = 4, .factors = {2}}),
            "factors are for premul_sum of floating types, not for sum of f32");
  EXPECT_EQ(message({.target = Dtype::i32,
                     .sources = {i32},
                     .count = 4,
                     .op = Op::premul_sum,
                     .factors = {2}}),
            "factors are for premul_sum of floating types, not for premul_sum of i32");
  EXPECT_EQ(message({.sources = {f32}, .count = 4, .op = Op::premul_sum, .factors = {2, 3}}),
            "there are 2 factors, not one for each source");
  EXPECT_EQ(message({.target = Dtype::bf16, .sources = {bf16}, .count = 4, .op = Op::band}),
            "cannot reduce bf16 with band");
}

INSTANTIATE_TEST_SUITE_P(Devices, ReduceTest, kDevices, device_name);

}  // namespace
}  // namespace tutti

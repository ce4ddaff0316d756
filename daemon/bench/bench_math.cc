#include "daemon/bench/bench_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "daemon/base/status.h"

namespace tutti {
namespace {

// Prime, so that no chunk, slice or block boundary falls on the same place of the pattern twice.
constexpr uint64_t kPeriod = 1021;

// ---- Numbers of any dtype, one element at a time; only tables of kPeriod go through here. ----

uint16_t half_of(float value) {  // Exact for the whole numbers used here; normal range only.
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value == 0) return 0;
  const uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
  return static_cast<uint16_t>(bits >> 16 & 0x8000) |
         static_cast<uint16_t>(exponent << 10 | (bits >> 13 & 0x3ff));
}

float half_to_float(uint16_t half) {
  const int exponent = half >> 10 & 0x1f;
  const float fraction = static_cast<float>(half & 0x3ff) / 1024;
  const float size =
      exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  return half & 0x8000 ? -size : size;
}

template <class T>
void store_as(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof value);
}
template <class T>
double load_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<double>(value);
}

void store(Dtype dtype, double value, std::byte* to) {
  const auto single = static_cast<float>(value);
  switch (dtype) {
    case Dtype::f32:
      return store_as(single, to);
    case Dtype::f64:
      return store_as(value, to);
    case Dtype::f16:
      return store_as(half_of(single), to);
    case Dtype::bf16:
      return store_as(static_cast<uint16_t>(std::bit_cast<uint32_t>(single) >> 16), to);
    case Dtype::i8:
      return store_as(static_cast<int8_t>(value), to);
    case Dtype::u8:
      return store_as(static_cast<uint8_t>(value), to);
    case Dtype::i32:
      return store_as(static_cast<int32_t>(value), to);
    case Dtype::i64:
      return store_as(static_cast<int64_t>(value), to);
    case Dtype::boolean:
      return store_as(static_cast<uint8_t>(value != 0), to);
    case Dtype::i16:
      return store_as(static_cast<int16_t>(value), to);
    case Dtype::u16:
      return store_as(static_cast<uint16_t>(value), to);
    case Dtype::u32:
      return store_as(static_cast<uint32_t>(value), to);
    case Dtype::u64:
      return store_as(static_cast<uint64_t>(value), to);
  }
}

double load(Dtype dtype, const std::byte* from) {
  uint16_t half = 0;
  switch (dtype) {
    case Dtype::f32:
      return load_as<float>(from);
    case Dtype::f64:
      return load_as<double>(from);
    case Dtype::f16:
      std::memcpy(&half, from, sizeof half);
      return half_to_float(half);
    case Dtype::bf16:
      std::memcpy(&half, from, sizeof half);
      return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
    case Dtype::i8:
      return load_as<int8_t>(from);
    case Dtype::u8:
      return load_as<uint8_t>(from);
    case Dtype::i32:
      return load_as<int32_t>(from);
    case Dtype::i64:
      return load_as<int64_t>(from);
    case Dtype::boolean:
      return load_as<uint8_t>(from);
    case Dtype::i16:
      return load_as<int16_t>(from);
    case Dtype::u16:
      return load_as<uint16_t>(from);
    case Dtype::u32:
      return load_as<uint32_t>(from);
    case Dtype::u64:
      return load_as<uint64_t>(from);
  }
  return 0;
}

// ---- The pattern ----

// 0 or 1 for sums (64 ranks stay within i8 and bf16); 1 or 2 for products, with at most one 2 at a
// place, so that they stay small.
double input_at(const BenchCase& bench, uint32_t rank, uint64_t index) {
  const uint64_t place = index % kPeriod;
  if (bench.op == Op::prod) return place % (bench.world_size + 1) == rank ? 2 : 1;
  if (bench.op == Op::min || bench.op == Op::max)
    return static_cast<double>((place * 7 + rank * 31) % 100);
  return static_cast<double>(((place + 1) * (2 * rank + 3) >> 2) & 1);
}

double combine(Op op, double a, double b) {
  switch (op) {
    case Op::min:
      return std::min(a, b);
    case Op::max:
      return std::max(a, b);
    case Op::prod:
      return a * b;
    default:
      return a + b;
  }
}

// A bool holds whether a number is 0: for the numbers used here, what its own reduction yields.
double held(Dtype dtype, double value) { return dtype == Dtype::boolean ? value != 0 : value; }

double reduced_at(const BenchCase& bench, uint64_t index) {
  double value = input_at(bench, 0, index);
  for (uint32_t r = 1; r < bench.world_size; ++r)
    value = combine(bench.op, value, input_at(bench, r, index));
  return bench.op == Op::mean ? value / bench.world_size : value;
}

// What must stand at `index` of the output of `rank`.
double expected_at(const BenchCase& bench, uint32_t rank, uint64_t index) {
  switch (bench.collective) {
    case Collective::broadcast:
      return input_at(bench, bench.root, index);
    case Collective::all_gather:
      return input_at(bench, static_cast<uint32_t>(index / bench.count), index % bench.count);
    case Collective::reduce_scatter:
      return reduced_at(bench, rank * bench.count + index);
    default:
      return reduced_at(bench, index);
  }
}

double tolerance(const BenchCase& bench) {
  if (bench.op != Op::mean || !reduces(bench.collective)) return 0;
  switch (bench.dtype) {
    case Dtype::bf16:
      return 1.0 / 128;
    case Dtype::f16:
      return 1.0 / 1024;
    case Dtype::f32:
      return 1e-6;
    default:
      return 1e-14;
  }
}

// The elements from `begin` on repeat with kPeriod until `end` (all_gather: the end of a block).
uint64_t wrong_in_run(const BenchCase& bench, uint32_t rank, std::span<const std::byte> output,
                      uint64_t begin, uint64_t end) {
  const size_t width = size_of(bench.dtype);
  const double slack = tolerance(bench);
  std::vector<double> expected;
  std::vector<std::byte> image(kPeriod * width);
  for (uint64_t i = 0; i < std::min(kPeriod, end - begin); ++i) {
    expected.push_back(held(bench.dtype, expected_at(bench, rank, begin + i)));
    store(bench.dtype, expected.back(), image.data() + i * width);
  }
  uint64_t wrong = 0;
  for (uint64_t i = begin; i < end; i += kPeriod) {
    const uint64_t elements = std::min(kPeriod, end - i);
    if (std::memcmp(output.data() + i * width, image.data(), elements * width) == 0) continue;
    for (uint64_t e = 0; e < elements; ++e) {
      const double got = load(bench.dtype, output.data() + (i + e) * width);
      if (!(std::fabs(got - expected[e]) <= slack * std::fabs(expected[e]))) ++wrong;
    }
  }
  return wrong;
}

}  // namespace

BenchCase bench_case(Collective collective, Dtype dtype, Op op, uint64_t bytes,
                     uint32_t world_size) {
  BenchCase bench{.collective = collective, .dtype = dtype, .op = op, .world_size = world_size};
  const uint64_t elements = bytes / size_of(dtype) / (has_blocks(collective) ? world_size : 1);
  bench.count = collective == Collective::barrier ? 0 : std::max<uint64_t>(elements, 1);
  return bench;
}

uint64_t bench_bytes(const BenchCase& bench) {
  return std::max(input_elements(bench), output_elements(bench)) * size_of(bench.dtype);
}

uint64_t input_elements(const BenchCase& bench) {
  return bench.collective == Collective::reduce_scatter ? bench.count * bench.world_size
                                                        : bench.count;
}

uint64_t output_elements(const BenchCase& bench) {
  return bench.collective == Collective::all_gather ? bench.count * bench.world_size : bench.count;
}

bool has_output(const BenchCase& bench, uint32_t rank) {
  if (bench.collective == Collective::barrier) return false;
  return bench.collective != Collective::reduce || rank == bench.root;
}

double bus_factor(Collective collective, uint32_t world_size) {
  const double n = world_size;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * (n - 1) / n;
    case Collective::all_gather:
    case Collective::reduce_scatter:
      return (n - 1) / n;
    default:
      return 1;
  }
}

double percentile(std::vector<double> samples, double percent) {
  if (samples.empty()) return 0;
  std::ranges::sort(samples);
  const double rank = std::ceil(percent / 100 * static_cast<double>(samples.size()));
  return samples[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

void fill_input(const BenchCase& bench, uint32_t rank, std::span<std::byte> input) {
  const size_t width = size_of(bench.dtype);
  std::vector<std::byte> image(kPeriod * width);
  for (uint64_t i = 0; i < kPeriod; ++i)
    store(bench.dtype, input_at(bench, rank, i), image.data() + i * width);
  for (size_t at = 0; at < input.size(); at += image.size())
    std::memcpy(input.data() + at, image.data(), std::min(image.size(), input.size() - at));
}

uint64_t count_wrong(const BenchCase& bench, uint32_t rank, std::span<const std::byte> output) {
  if (!has_output(bench, rank)) return 0;
  const uint64_t elements = output_elements(bench);
  require(output.size() == elements * size_of(bench.dtype), "the output has its elements");
  const uint64_t run = bench.collective == Collective::all_gather ? bench.count : elements;
  uint64_t wrong = 0;
  for (uint64_t begin = 0; begin < elements; begin += run)
    wrong += wrong_in_run(bench, rank, output, begin, begin + run);
  return wrong;
}

}  // namespace tutti

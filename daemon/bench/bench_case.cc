#include "daemon/bench/bench_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "daemon/base/status.h"

namespace tutti {
namespace {

// Prime, so that boundaries of chunks, slices and blocks fall on different places of the pattern.
constexpr uint64_t kPeriod = 1021;

// ---- Elements of any dtype, one at a time; only tables of kPeriod go through here. ----

// IEEE half precision. Scaling by 2^-112 changes f32's exponent bias (127) to f16's (15); then the
// f16 bits are bits 13 to 28 of the f32. Exact for the numbers used here, none of which is
// negative.
struct F16 {
  F16() = default;
  explicit F16(double value)
      : bits(static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value) * 0x1p-112f) >>
                                   13)) {}
  explicit operator double() const {
    const float size = std::bit_cast<float>((bits & 0x7fffu) << 13) * 0x1p112f;
    return (bits & 0x8000) != 0 ? -size : size;
  }
  uint16_t bits = 0;
};

struct Bf16 {
  Bf16() = default;
  explicit Bf16(double value)
      : bits(static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16)) {}
  explicit operator double() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
  uint16_t bits = 0;
};

struct Bool {
  Bool() = default;
  explicit Bool(double value) : byte(value != 0) {}
  explicit operator double() const { return byte; }
  uint8_t byte = 0;
};

// Calls `f` with a zero of the type that holds `dtype`.
template <class F>
auto with_element(Dtype dtype, const F& f) {
  switch (dtype) {
    case Dtype::f32:
      return f(float{});
    case Dtype::f64:
      return f(double{});
    case Dtype::f16:
      return f(F16{});
    case Dtype::bf16:
      return f(Bf16{});
    case Dtype::i8:
      return f(int8_t{});
    case Dtype::u8:
      return f(uint8_t{});
    case Dtype::i32:
      return f(int32_t{});
    case Dtype::i64:
      return f(int64_t{});
    case Dtype::boolean:
      return f(Bool{});
    case Dtype::i16:
      return f(int16_t{});
    case Dtype::u16:
      return f(uint16_t{});
    case Dtype::u32:
      return f(uint32_t{});
    case Dtype::u64:
      return f(uint64_t{});
  }
  fail_requirement("a case has a dtype");
}

void store(Dtype dtype, double value, std::byte* to) {
  with_element(dtype, [&](auto element) {
    element = static_cast<decltype(element)>(value);
    std::memcpy(to, &element, sizeof element);
  });
}

double load(Dtype dtype, const std::byte* from) {
  return with_element(dtype, [&](auto element) {
    std::memcpy(&element, from, sizeof element);
    return static_cast<double>(element);
  });
}

// ---- The pattern ----

// 0 or 1 for sums, so that 64 ranks stay within i8 and bf16, and for bools; 1 or 2 for products,
// with at most one 2 among the ranks.
double input_at(const BenchCase& bench, uint32_t rank, uint64_t index) {
  const uint64_t place = index % kPeriod;
  if (bench.op == Op::prod) return place % (bench.world_size + 1) == rank ? 2 : 1;
  const bool is_bits = is_bitwise(bench.op) && bench.dtype != Dtype::boolean;
  if (bench.op == Op::min || bench.op == Op::max || is_bits)
    return static_cast<double>((place * 7 + rank * 31) % 100);
  return static_cast<double>(((place + 1) * (2 * rank + 3) >> 2) & 1);
}

// For numbers that are not negative.
double combine(Op op, double a, double b) {
  const auto x = static_cast<uint64_t>(a);
  const auto y = static_cast<uint64_t>(b);
  switch (op) {
    case Op::min:
      return std::min(a, b);
    case Op::max:
      return std::max(a, b);
    case Op::prod:
      return a * b;
    case Op::band:
      return static_cast<double>(x & y);
    case Op::bor:
      return static_cast<double>(x | y);
    case Op::bxor:
      return static_cast<double>(x ^ y);
    default:
      return a + b;
  }
}

double reduced_at(const BenchCase& bench, uint64_t index) {
  const auto term = [&](uint32_t rank) {
    return factor_of(bench, rank) * input_at(bench, rank, index);
  };
  double value = term(0);
  for (uint32_t r = 1; r < bench.world_size; ++r) value = combine(bench.op, value, term(r));
  return bench.op == Op::mean ? value / bench.world_size : value;
}

// The element at `index` of the output of `rank`.
double expected_at(const BenchCase& bench, uint32_t rank, uint64_t index) {
  switch (bench.collective) {
    case Collective::broadcast:
      return input_at(bench, bench.root, index);
    case Collective::all_gather:
    case Collective::gather:
      return input_at(bench, static_cast<uint32_t>(index / bench.count), index % bench.count);
    case Collective::scatter:
      return input_at(bench, bench.root, rank * bench.count + index);
    case Collective::all_to_all:
      return input_at(bench, static_cast<uint32_t>(index / bench.count),
                      rank * bench.count + index % bench.count);
    case Collective::reduce_scatter:
      return reduced_at(bench, rank * bench.count + index);
    default:
      return reduced_at(bench, index);
  }
}

// Relative.
double tolerance(const BenchCase& bench) {
  if (bench.op != Op::mean || !reduces(bench.collective)) return 0;
  if (bench.dtype == Dtype::f64) return 1e-14;
  if (bench.dtype == Dtype::f32) return 1e-6;
  return bench.dtype == Dtype::f16 ? 1.0 / 1024 : 1.0 / 128;
}

// Elements `begin` to `end`, within one block of the output: the result repeats every kPeriod.
uint64_t wrong_in_run(const BenchCase& bench, uint32_t rank, std::span<const std::byte> output,
                      uint64_t begin, uint64_t end) {
  const size_t width = size_of(bench.dtype);
  std::vector<std::byte> expected(kPeriod * width);
  for (uint64_t i = 0; i < std::min(kPeriod, end - begin); ++i)
    store(bench.dtype, expected_at(bench, rank, begin + i), expected.data() + i * width);
  uint64_t wrong = 0;
  for (uint64_t i = begin; i < end; i += kPeriod) {
    const uint64_t elements = std::min(kPeriod, end - i);
    if (std::memcmp(output.data() + i * width, expected.data(), elements * width) == 0) continue;
    for (uint64_t e = 0; e < elements; ++e) {
      const double want = load(bench.dtype, expected.data() + e * width);
      const double got = load(bench.dtype, output.data() + (i + e) * width);
      if (!(std::fabs(got - want) <= tolerance(bench) * std::fabs(want))) ++wrong;
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
  return bench.count * (has_input_blocks(bench.collective) ? bench.world_size : 1);
}

uint64_t output_elements(const BenchCase& bench) {
  return bench.count * (has_output_blocks(bench.collective) ? bench.world_size : 1);
}

bool has_output(const BenchCase& bench, uint32_t rank) {
  if (bench.collective == Collective::barrier) return false;
  const bool at_root =
      bench.collective == Collective::reduce || bench.collective == Collective::gather;
  return !at_root || rank == bench.root;
}

double bus_factor(Collective collective, uint32_t world_size) {
  const double n = world_size;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * (n - 1) / n;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
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

double factor_of(const BenchCase& bench, uint32_t rank) {
  return bench.op == Op::premul_sum && reduces(bench.collective) ? 1 + rank % 2 : 1;
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
  const uint64_t run = has_output_blocks(bench.collective) ? bench.count : elements;
  uint64_t wrong = 0;
  for (uint64_t begin = 0; begin < elements; begin += run)
    wrong += wrong_in_run(bench, rank, output, begin, begin + run);
  return wrong;
}

}  // namespace tutti

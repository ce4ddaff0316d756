// Tensors whose results are known exactly in every dtype: small whole numbers in, float64
// arithmetic beside.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "proto/types.h"

namespace tutti::testing {

using Bytes = std::vector<std::byte>;

// A whole number of at most 8 bits and its 16-bit float forms are exact: a shift for bf16, a small
// sum for f16.
inline uint16_t bf16_of(double value) {
  const auto single = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &single, 4);
  return static_cast<uint16_t>(bits >> 16);
}
inline uint16_t f16_of(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double mantissa = std::frexp(std::abs(value), &exponent);  // [0.5, 1)
  const auto fraction = static_cast<uint16_t>(std::lround((mantissa * 2 - 1) * 1024));
  const auto sign = static_cast<uint16_t>(value < 0 ? 0x8000 : 0);
  return static_cast<uint16_t>(sign | ((exponent + 14) << 10) | fraction);
}
inline double f16_value(uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}
inline double bf16_value(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float single = 0;
  std::memcpy(&single, &wide, 4);
  return single;
}

template <class T>
void put_as(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}
template <class T>
double get_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return static_cast<double>(value);
}

inline void put(Bytes& tensor, Dtype dtype, size_t index, double value) {
  std::byte* at = tensor.data() + index * size_of(dtype);
  switch (dtype) {
    case Dtype::f32:
      return put_as(at, static_cast<float>(value));
    case Dtype::f64:
      return put_as(at, value);
    case Dtype::f16:
      return put_as(at, f16_of(value));
    case Dtype::bf16:
      return put_as(at, bf16_of(value));
    case Dtype::i8:
      return put_as(at, static_cast<int8_t>(value));
    case Dtype::u8:
      return put_as(at, static_cast<uint8_t>(value));
    case Dtype::i32:
      return put_as(at, static_cast<int32_t>(value));
    case Dtype::i64:
      return put_as(at, static_cast<int64_t>(value));
    case Dtype::boolean:
      return put_as(at, static_cast<uint8_t>(value != 0));
    case Dtype::i16:
      return put_as(at, static_cast<int16_t>(value));
    case Dtype::u16:
      return put_as(at, static_cast<uint16_t>(value));
    case Dtype::u32:
      return put_as(at, static_cast<uint32_t>(value));
    case Dtype::u64:
      return put_as(at, static_cast<uint64_t>(value));
  }
}

inline double get(const Bytes& tensor, Dtype dtype, size_t index) {
  const std::byte* at = tensor.data() + index * size_of(dtype);
  switch (dtype) {
    case Dtype::f32:
      return get_as<float>(at);
    case Dtype::f64:
      return get_as<double>(at);
    case Dtype::f16:
      return f16_value(static_cast<uint16_t>(get_as<uint16_t>(at)));
    case Dtype::bf16:
      return bf16_value(static_cast<uint16_t>(get_as<uint16_t>(at)));
    case Dtype::i8:
      return get_as<int8_t>(at);
    case Dtype::u8:
      return get_as<uint8_t>(at);
    case Dtype::i32:
      return get_as<int32_t>(at);
    case Dtype::i64:
      return get_as<int64_t>(at);
    case Dtype::boolean:
      return get_as<uint8_t>(at);
    case Dtype::i16:
      return get_as<int16_t>(at);
    case Dtype::u16:
      return get_as<uint16_t>(at);
    case Dtype::u32:
      return get_as<uint32_t>(at);
    case Dtype::u64:
      return get_as<uint64_t>(at);
  }
  return NAN;
}

// What rank `rank` holds at `index`: 0..3, or 1..2 for products. Bitwise, 0 or a number that all
// ranks share, so that the same results say which bools are true.
inline double contribution(Op op, int rank, size_t index) {
  if (is_bitwise(op)) return static_cast<double>((index * 37 >> rank % 6 & 1) * (1 + index % 100));
  const size_t mixed = index * 7 + static_cast<size_t>(rank) * 5 + index / 11;
  return op == Op::prod ? 1 + static_cast<double>(mixed % 16 == 0) : static_cast<double>(mixed % 4);
}

inline double combined(Op op, double a, double b) {
  if (op == Op::min) return std::min(a, b);
  if (op == Op::max) return std::max(a, b);
  const auto x = static_cast<uint64_t>(a);
  const auto y = static_cast<uint64_t>(b);
  if (op == Op::band) return static_cast<double>(x & y);
  if (op == Op::bor) return static_cast<double>(x | y);
  if (op == Op::bxor) return static_cast<double>(x ^ y);
  return op == Op::prod ? a * b : a + b;
}

// How the dtype holds a result: f32 rounds a mean, and of truths every reduction says whether that
// of small numbers is 0.
inline double held(Dtype dtype, double value) {
  if (dtype == Dtype::boolean) return value != 0;
  return dtype == Dtype::f32 ? static_cast<float>(value) : value;
}

// The exact result over `world` ranks.
inline double expected(Op op, int world, size_t index) {
  double result = contribution(op, 0, index);
  for (int rank = 1; rank < world; ++rank)
    result = combined(op, result, contribution(op, rank, index));
  return op == Op::mean ? result / world : result;
}

}  // namespace tutti::testing

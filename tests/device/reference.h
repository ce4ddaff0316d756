// Reductions computed the slow, obvious way, to compare devices with. 16-bit floats are read and
// rounded by arithmetic on doubles, which shares nothing with the code under test.
#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "tests/device/fixture.h"

namespace tutti {

// The binary format of a 16-bit float.
struct HalfFormat {
  int mantissa_bits;
  int least_exponent;  // Of normal numbers.
  int top_exponent;    // Of finite numbers.
};
inline HalfFormat half_format(Dtype dtype) {
  return dtype == Dtype::f16 ? HalfFormat{10, -14, 15} : HalfFormat{7, -126, 127};
}

inline double decode_half(Dtype dtype, uint16_t bits) {
  const auto [mantissa_bits, least, top] = half_format(dtype);
  const int exponent_field = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent_field == top - least + 2)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  const int whole = exponent_field == 0 ? 0 : 1 << mantissa_bits;
  const int exponent = least + (exponent_field == 0 ? 0 : exponent_field - 1);
  return sign * std::ldexp(whole + mantissa, exponent - mantissa_bits);
}

// To nearest, ties to even, as std::nearbyint does by default.
inline uint16_t encode_half(Dtype dtype, double value) {
  const auto [mantissa_bits, least, top] = half_format(dtype);
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = (top - least + 2) << mantissa_bits;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | 1);
  value = std::fabs(value);
  if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity);
  const int exponent = value == 0 ? least : std::max(std::ilogb(value), least);
  const double steps = std::nearbyint(std::ldexp(value, mantissa_bits - exponent));
  // A subnormal's exponent field is 0; a carry out of the mantissa raises it by itself.
  const int bits = ((exponent - least) << mantissa_bits) + static_cast<int>(steps);
  return static_cast<uint16_t>(sign | std::min(bits, infinity));
}

template <class T>
T value_at(const Bytes& bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void put(Bytes& bytes, size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

// Values of one type, on the host.
struct Values {
  Dtype dtype;
  Bytes bytes;
};

inline double float_at(const Values& values, size_t index) {
  switch (values.dtype) {
    case Dtype::f32:
      return value_at<float>(values.bytes, index);
    case Dtype::f64:
      return value_at<double>(values.bytes, index);
    default:
      return decode_half(values.dtype, value_at<uint16_t>(values.bytes, index));
  }
}

inline void put_float(Values& values, size_t index, double value) {
  switch (values.dtype) {
    case Dtype::f32:
      return put(values.bytes, index, static_cast<float>(value));
    case Dtype::f64:
      return put(values.bytes, index, value);
    default:
      return put(values.bytes, index, encode_half(values.dtype, value));
  }
}

// Modulo 2 to the type's width.
inline void put_integer(Values& values, size_t index, uint64_t value) {
  const size_t size = size_of(values.dtype);
  std::memcpy(values.bytes.data() + index * size, &value, size);
}

// Each product is rounded to the type's accumulator and then to the type.
inline void scale_slowly(Values& values, double factor) {
  if (factor == 1) return;
  for (size_t i = 0; i < values.bytes.size() / size_of(values.dtype); ++i) {
    const double value = float_at(values, i);
    const bool is_f64 = values.dtype == Dtype::f64;
    put_float(values, i,
              is_f64 ? value * factor : static_cast<float>(value) * static_cast<float>(factor));
  }
}

template <class T>
T combine_floats(Op op, T a, T b) {
  const bool nan = std::isnan(a) || std::isnan(b);
  if (op == Op::min) return nan ? std::numeric_limits<T>::quiet_NaN() : std::min(a, b);
  if (op == Op::max) return nan ? std::numeric_limits<T>::quiet_NaN() : std::max(a, b);
  return op == Op::prod ? a * b : a + b;
}

template <class T>
T combine_integers(Op op, T a, T b) {
  if (op == Op::min) return std::min(a, b);
  if (op == Op::max) return std::max(a, b);
  const auto x = static_cast<uint64_t>(a);
  const auto y = static_cast<uint64_t>(b);
  if (op == Op::band) return static_cast<T>(x & y);
  if (op == Op::bor) return static_cast<T>(x | y);
  if (op == Op::bxor) return static_cast<T>(x ^ y);
  return static_cast<T>(op == Op::prod ? x * y : x + y);
}

template <class T>
void reference_floats(Values& target, const std::vector<Values>& sources, size_t count, Op op,
                      uint32_t divisor) {
  for (size_t i = 0; i < count; ++i) {
    T result = static_cast<T>(float_at(sources[0], i));
    for (size_t s = 1; s < sources.size(); ++s)
      result = combine_floats(op, result, static_cast<T>(float_at(sources[s], i)));
    put_float(target, i, result / static_cast<T>(divisor));
  }
}

template <class T>
void reference_integers(Values& target, const std::vector<Values>& sources, size_t count, Op op) {
  for (size_t i = 0; i < count; ++i) {
    T result = value_at<T>(sources[0].bytes, i);
    for (size_t s = 1; s < sources.size(); ++s)
      result = combine_integers(op, result, value_at<T>(sources[s].bytes, i));
    put(target.bytes, i, result);
  }
}

inline void reference_truths(Values& target, const std::vector<Values>& sources, size_t count,
                             Op op) {
  for (size_t i = 0; i < count; ++i) {
    size_t truths = 0;
    for (const Values& source : sources) truths += source.bytes[i] != std::byte{0};
    const bool all = op == Op::prod || op == Op::min || op == Op::band;
    const bool any_or_odd = op == Op::bxor ? truths % 2 != 0 : truths > 0;
    put(target.bytes, i, all ? truths == sources.size() : any_or_odd);
  }
}

inline void reference_whole(Values& target, const std::vector<Values>& sources, size_t count,
                            Op op) {
  switch (target.dtype) {
    case Dtype::boolean:
      return reference_truths(target, sources, count, op);
    case Dtype::i8:
      return reference_integers<int8_t>(target, sources, count, op);
    case Dtype::u8:
      return reference_integers<uint8_t>(target, sources, count, op);
    case Dtype::i16:
      return reference_integers<int16_t>(target, sources, count, op);
    case Dtype::u16:
      return reference_integers<uint16_t>(target, sources, count, op);
    case Dtype::i32:
      return reference_integers<int32_t>(target, sources, count, op);
    case Dtype::u32:
      return reference_integers<uint32_t>(target, sources, count, op);
    case Dtype::i64:
      return reference_integers<int64_t>(target, sources, count, op);
    default:
      return reference_integers<uint64_t>(target, sources, count, op);
  }
}

inline Values reference(Dtype dtype, const std::vector<Values>& sources, size_t count, Op op,
                        uint32_t divisor = 1) {
  Values target = {dtype, Bytes(count * size_of(dtype))};
  if (dtype == Dtype::f64) {
    reference_floats<double>(target, sources, count, op, divisor);
  } else if (is_floating(dtype)) {
    reference_floats<float>(target, sources, count, op, divisor);
  } else {
    reference_whole(target, sources, count, op);
  }
  return target;
}

// Same bits; or both NaN; or, where min and max may take either zero, both zero.
inline bool same_value(const Values& a, const Values& b, size_t index) {
  const size_t size = size_of(a.dtype);
  if (std::memcmp(&a.bytes[index * size], &b.bytes[index * size], size) == 0) return true;
  if (!is_floating(a.dtype)) return false;
  const double x = float_at(a, index);
  const double y = float_at(b, index);
  return (std::isnan(x) && std::isnan(y)) || (x == 0 && y == 0);
}

// Random bits for integers, and as often 0 for bools. Floats: mostly ordinary values, with zeros,
// subnormals, the largest, infinities and NaNs among them.
inline Values random_values(Dtype dtype, size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  Values values = {dtype, Bytes(count * size_of(dtype))};
  const std::array<double, 9> specials = {0.0,  -0.0,     1e-7,      -6e-8,       65504.0,
                                          3e38, INFINITY, -INFINITY, std::nan("")};
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = random();
    if (dtype == Dtype::boolean) {
      put_integer(values, i, bits % 2 == 0 ? 0 : bits >> 8);
    } else if (!is_floating(dtype)) {
      put_integer(values, i, bits);
    } else if (bits % 64 == 0) {
      put_float(values, i, specials[bits / 64 % specials.size()]);
    } else {
      put_float(values, i, std::ldexp(static_cast<double>(bits >> 12), -51) - 1);
    }
  }
  return values;
}

}  // namespace tutti

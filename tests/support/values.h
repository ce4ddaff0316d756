// Tensors of every dtype as numbers, and reductions computed the slow, obvious way. 16-bit floats
// are read and rounded by arithmetic on doubles, which shares nothing with the code under test.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "proto/types.h"

namespace tutti::testing {

using Bytes = std::vector<std::byte>;

// ---- 16-bit floats ----

struct HalfFormat {
  int mantissa_bits;
  int least_exponent;  // Of normal numbers.
  int top_exponent;    // Of finite numbers.
};
inline HalfFormat half_format(Dtype dtype) {
  return dtype == Dtype::f16 ? HalfFormat{10, -14, 15} : HalfFormat{7, -126, 127};
}
inline bool is_half(Dtype dtype) { return dtype == Dtype::f16 || dtype == Dtype::bf16; }

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

// ---- Elements ----

template <class T>
void put_as(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}
template <class T>
T get_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Calls `act` with a value of the type that holds an element; 16-bit floats are held by their bits.
template <class Act>
auto with_type(Dtype dtype, const Act& act) {
  switch (dtype) {
    case Dtype::f32:
      return act(float());
    case Dtype::f64:
      return act(double());
    case Dtype::boolean:
      return act(bool());
    case Dtype::i8:
      return act(int8_t());
    case Dtype::u8:
      return act(uint8_t());
    case Dtype::i16:
      return act(int16_t());
    case Dtype::i32:
      return act(int32_t());
    case Dtype::u32:
      return act(uint32_t());
    case Dtype::i64:
      return act(int64_t());
    case Dtype::u64:
      return act(uint64_t());
    default:
      return act(uint16_t());
  }
}

inline void put(std::byte* tensor, Dtype dtype, size_t index, double value) {
  if (is_half(dtype)) value = encode_half(dtype, value);
  with_type(dtype, [&](auto type) {
    put_as(tensor + index * size_of(dtype), static_cast<decltype(type)>(value));
  });
}

// A bool is the number of its byte, so that one that is neither 0 nor 1 is seen.
inline double get(const std::byte* tensor, Dtype dtype, size_t index) {
  const std::byte* at = tensor + index * size_of(dtype);
  if (is_half(dtype)) return decode_half(dtype, get_as<uint16_t>(at));
  if (dtype == Dtype::boolean) return get_as<uint8_t>(at);
  return with_type(dtype,
                   [&](auto type) { return static_cast<double>(get_as<decltype(type)>(at)); });
}

inline void put(Bytes& tensor, Dtype dtype, size_t index, double value) {
  put(tensor.data(), dtype, index, value);
}
inline double get(const Bytes& tensor, Dtype dtype, size_t index) {
  return get(tensor.data(), dtype, index);
}

// ---- Reductions ----

// Integers wrap. Truths are summed to whether any is there.
template <class T>
T combined(Op op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (op == Op::min) return std::min(a, b);
  if (op == Op::max) return std::max(a, b);
  if constexpr (std::is_floating_point_v<T>)
    if (!is_bitwise(op)) return op == Op::prod ? a * b : a + b;
  const auto x = static_cast<uint64_t>(a);
  const auto y = static_cast<uint64_t>(b);
  if (op == Op::band) return static_cast<T>(x & y);
  if (op == Op::bor) return static_cast<T>(x | y);
  if (op == Op::bxor) return static_cast<T>(x ^ y);
  return static_cast<T>(op == Op::prod ? x * y : x + y);
}

// Elements of one dtype at an address.
struct Elements {
  const std::byte* data;
  Dtype dtype;
};

// Values of one dtype, of their own.
struct TensorValues {
  Dtype dtype;
  Bytes bytes;

  TensorValues(Dtype type, size_t count) : dtype(type), bytes(count * size_of(type)) {}
  TensorValues(Dtype type, Bytes from) : dtype(type), bytes(std::move(from)) {}
  size_t size() const { return bytes.size() / size_of(dtype); }
  double at(size_t index) const { return get(bytes, dtype, index); }
  void set(size_t index, double value) { put(bytes, dtype, index, value); }
  operator Elements() const { return {bytes.data(), dtype}; }
};

template <class T>
T element(const Elements& from, size_t index) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(get(from.data, from.dtype, index));
  else if constexpr (std::is_same_v<T, bool>)
    return get(from.data, from.dtype, index) != 0;
  else
    return get_as<T>(from.data + index * sizeof(T));
}

// Folds in the type T.
template <class T>
void reduce_as(TensorValues& target, const std::vector<Elements>& sources, Op op,
               uint32_t divisor) {
  for (size_t i = 0; i < target.size(); ++i) {
    T result = element<T>(sources[0], i);
    for (size_t s = 1; s < sources.size(); ++s)
      result = combined(op, result, element<T>(sources[s], i));
    if constexpr (std::is_floating_point_v<T>)
      target.set(i, result / static_cast<T>(divisor));
    else
      put_as(target.bytes.data() + i * sizeof(T), result);
  }
}

// 16-bit floats are folded as f32 and rounded once. Whole numbers are not divided.
inline TensorValues reduced(Dtype dtype, const std::vector<Elements>& sources, size_t count, Op op,
                            uint32_t divisor = 1) {
  TensorValues target(dtype, count);
  with_type(is_half(dtype) ? Dtype::f32 : dtype,
            [&](auto type) { reduce_as<decltype(type)>(target, sources, op, divisor); });
  return target;
}

// Each product is rounded to the type's accumulator and then to the type.
inline void scale_slowly(TensorValues& values, double factor) {
  if (factor == 1) return;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values.at(i);
    const bool is_f64 = values.dtype == Dtype::f64;
    values.set(i, is_f64 ? value * factor : static_cast<float>(value) * static_cast<float>(factor));
  }
}

// Same bits; or both NaN; or, where min and max may take either zero, both zero.
inline bool same_value(const TensorValues& a, const TensorValues& b, size_t index) {
  const size_t size = size_of(a.dtype);
  if (std::memcmp(&a.bytes[index * size], &b.bytes[index * size], size) == 0) return true;
  if (!is_floating(a.dtype)) return false;
  return (std::isnan(a.at(index)) && std::isnan(b.at(index))) ||
         (a.at(index) == 0 && b.at(index) == 0);
}

// ---- Values that are rounded ----

// Random bits for integers, and as often 0 for bools. Floats: mostly ordinary values, with zeros,
// subnormals, the largest, infinities and NaNs among them.
inline TensorValues random_values(Dtype dtype, size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  TensorValues values(dtype, count);
  const std::array<double, 9> specials = {0.0,  -0.0,     1e-7,      -6e-8,       65504.0,
                                          3e38, INFINITY, -INFINITY, std::nan("")};
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = random();
    if (!is_floating(dtype)) {
      const uint64_t value = dtype != Dtype::boolean ? bits : bits % 2 == 0 ? 0 : bits >> 8;
      std::memcpy(values.bytes.data() + i * size_of(dtype), &value, size_of(dtype));
    } else if (bits % 64 == 0) {
      values.set(i, specials[bits / 64 % specials.size()]);
    } else {
      values.set(i, std::ldexp(static_cast<double>(bits >> 12), -51) - 1);
    }
  }
  return values;
}

// Sevenths of whole numbers: sums and products of them are rounded.
inline Bytes sevenths(Dtype dtype, size_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  Bytes made(count * size_of(dtype));
  for (size_t i = 0; i < count; ++i)
    put(made, dtype, i, static_cast<double>(static_cast<int>(random() % 2001) - 1000) / 7);
  return made;
}

}  // namespace tutti::testing

// A reproducible reduction, computed the slow, obvious way: by rank, and to the bit.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/values.h"

namespace tutti::testing {

template <class T>
T in_turn(Op op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (op == Op::min) return a < b || std::isnan(a) ? a : b;
    if (op == Op::max) return a > b || std::isnan(a) ? a : b;
    return op == Op::prod ? a * b : a + b;
  } else {
    return combined(op, a, b);
  }
}

// Bits of a NaN: quiet, positive, without a payload.
inline void put_nan(Bytes& tensor, Dtype dtype, size_t index) {
  if (!is_half(dtype)) return put(tensor, dtype, index, std::numeric_limits<double>::quiet_NaN());
  const uint16_t bits = dtype == Dtype::f16 ? 0x7e00 : 0x7fc0;
  put_as(tensor.data() + index * 2, bits);
}

template <class T>
void reduce_in_rank_order(Dtype dtype, Op op, const std::vector<Bytes>& inputs, Bytes& result) {
  for (size_t i = 0; i < result.size() / size_of(dtype); ++i) {
    T value = element<T>({inputs[0].data(), dtype}, i);
    for (size_t rank = 1; rank < inputs.size(); ++rank)
      value = in_turn(op, value, element<T>({inputs[rank].data(), dtype}, i));
    if constexpr (std::is_floating_point_v<T>) {
      if (op == Op::mean) value /= static_cast<T>(inputs.size());
      if (std::isnan(value))
        put_nan(result, dtype, i);
      else
        put(result, dtype, i, value);
    } else {
      put_as(result.data() + i * sizeof(T), value);
    }
  }
}

// The inputs of at least two ranks, by rank. Not for bools.
inline Bytes reduced_in_rank_order(Dtype dtype, Op op, const std::vector<Bytes>& inputs) {
  Bytes result(inputs[0].size());
  with_type(is_half(dtype) ? Dtype::f32 : dtype,
            [&](auto type) { reduce_in_rank_order<decltype(type)>(dtype, op, inputs, result); });
  return result;
}

// Values that no two orders sum alike: wild exponents, with zeros of both signs, subnormals,
// infinities and NaNs with payloads among them.
inline Bytes wild_values(Dtype dtype, size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  Bytes values(count * size_of(dtype));
  const int reach = dtype == Dtype::f16 ? 12 : 30;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = random();
    std::byte* at = values.data() + i * size_of(dtype);
    const double mantissa = static_cast<double>(bits >> 12) / 4503599627370496.0 - 0.5;
    if (bits % 16 == 0)
      std::memcpy(at, &bits, size_of(dtype));
    else if (bits % 16 == 1)
      put(values, dtype, i, bits & 64 ? 0.0 : -0.0);
    else
      put(values, dtype, i,
          std::ldexp(mantissa, static_cast<int>(bits >> 4 & 63) % reach - reach / 2));
  }
  return values;
}

}  // namespace tutti::testing

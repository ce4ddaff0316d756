// The operation on two values, written once for every device, so that all give the same bits.
//
// Internal linkage on purpose: the host's kernels include this in files compiled for different
// processors, and the linker must never merge those copies.
#pragma once

#include <type_traits>

#include "proto/types.h"

namespace tutti {
namespace {

// The NaN of what is folded of several sources: quiet, positive and without a payload, as NumPy's.
template <class T>
constexpr T kNan = static_cast<T>(__builtin_nanf(""));

// Integers wrap: they are computed as unsigned. A NaN on either side gives NaN. Op::mean and
// Op::premul_sum sum. The bitwise operations are not for floats.
template <Op op, class T>
constexpr T combine(T a, T b) {
  if constexpr (op == Op::min) {
    const T least = a < b ? a : b;  // b, where either is NaN.
    return a != a ? a : least;
  } else if constexpr (op == Op::max) {
    const T most = a > b ? a : b;
    return a != a ? a : most;
  } else if constexpr (op == Op::band) {
    return static_cast<T>(a & b);
  } else if constexpr (op == Op::bor) {
    return static_cast<T>(a | b);
  } else if constexpr (op == Op::bxor) {
    return static_cast<T>(a ^ b);
  } else if constexpr (std::is_integral_v<T>) {
    // Narrow types would be promoted to int, whose overflow is undefined.
    constexpr bool narrow = sizeof(T) < sizeof(unsigned);
    using U = std::conditional_t<narrow, unsigned, std::make_unsigned_t<T>>;
    const U x = static_cast<U>(a);
    const U y = static_cast<U>(b);
    return static_cast<T>(op == Op::prod ? x * y : x + y);
  } else {
    return op == Op::prod ? a * b : a + b;
  }
}

}  // namespace
}  // namespace tutti

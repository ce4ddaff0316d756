// Vectors of 16-bit floats to and from f32, by integer arithmetic without branches. Subnormals,
// infinities and NaNs are kept; rounding is to nearest, ties to even. After Fabian Giesen's
// public-domain half-float conversions.
//
// Internal linkage on purpose, as in vectors.h.
#pragma once

#include "daemon/kernel/vectors.h"

namespace tutti {
namespace {

// 16-bit floats are given and returned in the low halves of 32-bit values.
template <size_t bytes>
struct HalfBits {
  using Floats = Vector<float, bytes>;
  using Bits = Vector<uint32_t, bytes>;

  static Floats from_bf16(Bits half) { return floats(half << 16); }

  static Bits to_bf16(Floats values) {
    const Bits all = bits(values);
    const Bits rounded = (all + 0x7fffu + (all >> 16 & 1u)) >> 16;
    const Bits nan = all >> 16 | 0x40u;
    return (all & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
  }

  static Floats from_f16(Bits half) {
    constexpr uint32_t kExponent = 0x7c00u << 13;
    constexpr uint32_t kRebias = (127u - 15u) << 23;
    const Bits shifted = (half & 0x7fffu) << 13;
    const Bits exponent = shifted & kExponent;
    const Bits normal = shifted + kRebias;
    const Bits special = normal + ((128u - 16u) << 23);
    // The f32 unit gives a subnormal its exponent: 2^-14 * 1.m - 2^-14.
    const Bits subnormal = bits(floats(normal + (1u << 23)) - floats(Bits{} + (113u << 23)));
    const Bits finite = exponent == 0 ? subnormal : normal;
    const Bits magnitude = exponent == kExponent ? special : finite;
    return floats(magnitude | (half & 0x8000u) << 16);
  }

  static Bits to_f16(Floats values) {
    constexpr uint32_t kLeastNormal = 113u << 23;
    constexpr uint32_t kTooLarge = 143u << 23;
    constexpr uint32_t kAligner = 126u << 23;  // 0.5: adding it shifts a subnormal's bits in place.
    const Bits all = bits(values);
    const Bits magnitude = all & 0x7fffffffu;
    const Bits odd = magnitude >> 13 & 1u;
    const Bits normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
    const Bits subnormal = bits(floats(magnitude) + floats(Bits{} + kAligner)) - kAligner;
    const Bits special = magnitude > 0x7f800000u ? Bits{} + 0x7e00u : Bits{} + 0x7c00u;
    const Bits finite = magnitude < kLeastNormal ? subnormal : normal;
    const Bits result = magnitude >= kTooLarge ? special : finite;
    return result | (all >> 16 & 0x8000u);
  }

 private:
  static Floats floats(Bits values) { return reinterpret_cast<Floats>(values); }
  static Bits bits(Floats values) { return reinterpret_cast<Bits>(values); }
};

}  // namespace
}  // namespace tutti

// 16-bit floats to and from f32, by integer arithmetic without branches, so that compilers turn
// loops over them into vector code on any processor. Subnormals, infinities and NaNs are kept;
// rounding is to nearest, ties to even. After Fabian Giesen's public-domain half-float conversions.
//
// Internal linkage on purpose, as in arithmetic.h.
#pragma once

#include <cstdint>

#include "daemon/kernel/loose.h"
#include "proto/types.h"

namespace tutti {
namespace {

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

inline uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline float to_float(Bf16 value) { return float_of(uint32_t{value.bits} << 16); }

inline float to_float(F16 value) {
  constexpr uint32_t kExponent = 0x7c00u << 13;
  constexpr uint32_t kRebias = (127u - 15u) << 23;
  const uint32_t shifted = (value.bits & 0x7fffu) << 13;
  const uint32_t exponent = shifted & kExponent;
  const uint32_t normal = shifted + kRebias;
  const uint32_t special = normal + ((128u - 16u) << 23);
  // The f32 unit gives a subnormal its exponent: 2^-14 * 1.m - 2^-14.
  const uint32_t subnormal = bits_of(float_of(normal + (1u << 23)) - float_of(113u << 23));
  const uint32_t finite = exponent == 0 ? subnormal : normal;
  const uint32_t magnitude = exponent == kExponent ? special : finite;
  return float_of(magnitude | (value.bits & 0x8000u) << 16);
}

inline void from_float(float value, Bf16& to) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const uint32_t nan = bits >> 16 | 0x40u;
  to.bits = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

inline void from_float(float value, F16& to) {
  constexpr uint32_t kLeastNormal = 113u << 23;
  constexpr uint32_t kTooLarge = 143u << 23;
  constexpr uint32_t kAligner = 126u << 23;  // 0.5: adding it shifts a subnormal's bits in place.
  const uint32_t bits = bits_of(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t odd = magnitude >> 13 & 1u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
  const uint32_t subnormal = bits_of(float_of(magnitude) + float_of(kAligner)) - kAligner;
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t finite = magnitude < kLeastNormal ? subnormal : normal;
  const uint32_t result = magnitude >= kTooLarge ? special : finite;
  to.bits = static_cast<uint16_t>(result | (bits >> 16 & 0x8000u));
}

template <class Half>
void widen_block(float* __restrict to, const std::byte* __restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = to_float(load<Half>(from, i));
}

template <class Half>
void narrow_block(std::byte* __restrict to, const float* __restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Half value;
    from_float(from[i], value);
    store(to, i, value);
  }
}

// Blocks of 16-bit floats (f16 or bf16) to and from f32; the two do not overlap.
struct PortableHalves {
  static void widen(Dtype dtype, float* __restrict to, const std::byte* __restrict from,
                    size_t count) {
    dtype == Dtype::f16 ? widen_block<F16>(to, from, count) : widen_block<Bf16>(to, from, count);
  }
  static void narrow(Dtype dtype, std::byte* __restrict to, const float* __restrict from,
                     size_t count) {
    dtype == Dtype::f16 ? narrow_block<F16>(to, from, count) : narrow_block<Bf16>(to, from, count);
  }
};

}  // namespace
}  // namespace tutti

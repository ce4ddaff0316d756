// As cuda_fp16.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

// NOLINTBEGIN(readability-identifier-naming): CUDA's names.
struct __nv_bfloat16 {
  uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 value) {
  return std::bit_cast<float>(uint32_t{value.bits} << 16);
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  return {static_cast<uint16_t>(std::isnan(value) ? 0x7fff : rounded >> 16)};
}
inline __nv_bfloat16 __ushort_as_bfloat16(uint16_t bits) { return {bits}; }
// NOLINTEND(readability-identifier-naming)

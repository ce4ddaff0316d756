// Blocks of 16-bit floats by the processor's own conversions, eight values at a time; the rest and
// bf16 as on every processor. Included only by files compiled with -mf16c.
#pragma once

#include <immintrin.h>

#include "daemon/kernel/half.h"

namespace tutti {
namespace {

constexpr size_t kLanes = 8;

struct F16cHalves {
  static void widen(Dtype dtype, float* to, const std::byte* from, size_t count) {
    size_t i = 0;
    if (dtype == Dtype::f16)
      for (; i + kLanes <= count; i += kLanes) {
        const auto* half = reinterpret_cast<const __m128i_u*>(from + i * sizeof(F16));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(half)));
      }
    PortableHalves::widen(dtype, to + i, from + i * sizeof(F16), count - i);
  }

  static void narrow(Dtype dtype, std::byte* to, const float* from, size_t count) {
    size_t i = 0;
    if (dtype == Dtype::f16)
      for (; i + kLanes <= count; i += kLanes) {
        auto* half = reinterpret_cast<__m128i_u*>(to + i * sizeof(F16));
        const __m256 values = _mm256_loadu_ps(from + i);
        _mm_storeu_si128(half, _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
      }
    PortableHalves::narrow(dtype, to + i * sizeof(F16), from + i, count - i);
  }
};

}  // namespace
}  // namespace tutti

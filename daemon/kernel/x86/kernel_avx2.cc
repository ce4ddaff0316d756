#include <immintrin.h>

#include "daemon/kernel/fold.h"
#include "daemon/kernel/half.h"
#include "daemon/kernel/variants.h"

namespace tutti {
namespace {

struct Avx2 {
  static constexpr size_t kBytes = 32;
  using Bits = HalfBits<kBytes>;
  using Floats = Bits::Floats;
  using Halves = Vector<uint16_t, kBytes / 2>;

  static Floats from_f16(Halves half) { return _mm256_cvtph_ps(reinterpret_cast<__m128i>(half)); }
  static Halves to_f16(Floats values) {
    return reinterpret_cast<Halves>(_mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
  static Floats from_bf16(Halves half) {
    const __m256i wide = _mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(half));
    return Bits::from_bf16(reinterpret_cast<Bits::Bits>(wide));
  }
  static Halves to_bf16(Floats values) {
    const auto wide = reinterpret_cast<__m256i>(Bits::to_bf16(values));
    const __m128i low = _mm256_castsi256_si128(wide);
    return reinterpret_cast<Halves>(_mm_packus_epi32(low, _mm256_extracti128_si256(wide, 1)));
  }

  template <class V>
  static void store_past_cache(std::byte* to, const V& values) {
    if constexpr (sizeof(V) == kBytes)
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(values));
    else
      _mm_stream_si128(reinterpret_cast<__m128i*>(to), reinterpret_cast<__m128i>(values));
  }
  static void finish_stores() { _mm_sfence(); }
};

}  // namespace

void fold_avx2(const FoldJob& job) { fold_on<Avx2>(job); }

}  // namespace tutti

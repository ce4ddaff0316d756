#include <immintrin.h>

#include "daemon/kernel/fold.h"
#include "daemon/kernel/half.h"
#include "daemon/kernel/variants.h"

namespace tutti {
namespace {

struct Avx512 {
  static constexpr size_t kBytes = 64;
  using Bits = HalfBits<kBytes>;
  using Floats = Bits::Floats;
  using Halves = Vector<uint16_t, kBytes / 2>;

  static Floats from_f16(Halves half) { return _mm512_cvtph_ps(reinterpret_cast<__m256i>(half)); }
  static Halves to_f16(Floats values) {
    return reinterpret_cast<Halves>(_mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
  static Floats from_bf16(Halves half) {
    const __m512i wide = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(half));
    return Bits::from_bf16(reinterpret_cast<Bits::Bits>(wide));
  }
  static Halves to_bf16(Floats values) {
    const auto wide = reinterpret_cast<__m512i>(Bits::to_bf16(values));
    return reinterpret_cast<Halves>(_mm512_cvtepi32_epi16(wide));
  }

  template <class V>
  static void store_past_cache(std::byte* to, const V& values) {
    if constexpr (sizeof(V) == kBytes)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to), reinterpret_cast<__m512i>(values));
    else
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(values));
  }
  static void finish_stores() { _mm_sfence(); }
};

}  // namespace

void fold_avx512(const FoldJob& job) { fold_on<Avx512>(job); }

}  // namespace tutti

#include <arm_neon.h>

#include "daemon/kernel/fold.h"
#include "daemon/kernel/half.h"
#include "daemon/kernel/variants.h"

namespace tutti {
namespace {

struct Neon {
  static constexpr size_t kBytes = 16;
  using Bits = HalfBits<kBytes>;
  using Floats = Bits::Floats;
  using Halves = Vector<uint16_t, kBytes / 2>;

  static Floats from_f16(Halves half) { return vcvt_f32_f16(reinterpret_cast<float16x4_t>(half)); }
  static Halves to_f16(Floats values) { return reinterpret_cast<Halves>(vcvt_f16_f32(values)); }
  static Floats from_bf16(Halves half) {
    return Bits::from_bf16(__builtin_convertvector(half, Bits::Bits));
  }
  static Halves to_bf16(Floats values) {
    return __builtin_convertvector(Bits::to_bf16(values), Halves);
  }

  // Two registers at once is the only such store there is; one is stored as ever.
  template <class V>
  static void store_past_cache(std::byte* to, const V& values) {
    store(to, values);
  }
  static void finish_stores() {}
};

}  // namespace

void fold_neon(const FoldJob& job) { fold_on<Neon>(job); }

}  // namespace tutti

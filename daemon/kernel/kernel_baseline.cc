#include "daemon/kernel/fold.h"
#include "daemon/kernel/half.h"
#include "daemon/kernel/variants.h"

namespace tutti {
namespace {

struct Baseline {
  static constexpr size_t kBytes = 16;
  using Bits = HalfBits<kBytes>;
  using Floats = Bits::Floats;
  using Halves = Vector<uint16_t, kBytes / 2>;

  static Floats from_bf16(Halves half) { return Bits::from_bf16(widen(half)); }
  static Halves to_bf16(Floats values) { return narrow(Bits::to_bf16(values)); }
  static Floats from_f16(Halves half) { return Bits::from_f16(widen(half)); }
  static Halves to_f16(Floats values) { return narrow(Bits::to_f16(values)); }
  static Bits::Bits widen(Halves half) { return __builtin_convertvector(half, Bits::Bits); }
  static Halves narrow(Bits::Bits wide) { return __builtin_convertvector(wide, Halves); }

  // No processor has this in common with all others of its architecture.
  template <class V>
  static void store_past_cache(std::byte* to, const V& values) {
    store(to, values);
  }
  static void finish_stores() {}
};

}  // namespace

void fold_baseline(const FoldJob& job) { fold_on<Baseline>(job); }

}  // namespace tutti

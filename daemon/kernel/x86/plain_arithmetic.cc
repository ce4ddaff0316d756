#include <xmmintrin.h>

#include "daemon/kernel/kernel.h"

namespace tutti {
namespace {

// For the vector units, which kernels use; reading all of the environment takes ten times as long.
constexpr unsigned kDefault = 0x1f80;
constexpr unsigned kFlags = 0x3f;  // Exceptions that were raised: no mode.

}  // namespace

PlainArithmetic::PlainArithmetic() {  // NOLINT: the environment is kept where it changes.
  const unsigned now = _mm_getcsr();
  changed_ = (now & ~kFlags) != kDefault;
  if (!changed_) return;
  before_.__mxcsr = now;
  _mm_setcsr(kDefault);
}

PlainArithmetic::~PlainArithmetic() {
  if (changed_) _mm_setcsr(before_.__mxcsr);
}

}  // namespace tutti

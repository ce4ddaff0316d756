// Brings an input to shared memory: copies it, or multiplies it by a factor on the way
// (TUTTI_PREMUL_SUM).
#pragma once

#include <cstddef>

#include "proto/types.h"

namespace tutti::client {

class InputCopy {
 public:
  InputCopy() = default;  // Copies the bytes.
  // Multiplies elements of a floating dtype, as scale() of daemon/kernel/kernel.h.
  InputCopy(Dtype dtype, double factor) : dtype_(dtype), factor_(factor) {}

  // Whether values change, so that an input must not be used where it is.
  bool scales() const { return factor_ != 1; }
  double factor() const { return factor_; }

  // Writes `bytes` bytes: where it scales, whole elements at any alignment, and `to` may be `from`.
  void operator()(std::byte* to, const std::byte* from, size_t bytes) const;

 private:
  Dtype dtype_ = Dtype::f32;
  double factor_ = 1;
};

}  // namespace tutti::client

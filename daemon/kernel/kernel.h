// The reduction on the host's processor: one source compiled for several processors, of which the
// best is chosen at run time. Allocates nothing. Also part of the client library.
#pragma once

#include <cfenv>
#include <cstddef>
#include <cstdint>

#include "proto/types.h"

namespace tutti {

// An array of values. 16-bit floats may be combined with f32.
struct Operand {
  const void* data;
  Dtype dtype;
};
struct Target {
  void* data;
  Dtype dtype;
};

// target = (sources[0] op sources[1] op ...) / divisor, element by element, strictly in this order,
// into every target, in one pass over memory. A target may be exactly one of the sources; partial
// overlap is not allowed, nor are two targets in one place. Any alignment. The arguments are
// checked by the caller; Device::reduce has the rules.
struct FoldJob {
  const Target* targets;
  size_t target_count;  // At least 1; all of one dtype.
  const Operand* sources;
  size_t source_count;  // At least 1.
  size_t count;
  Op op;
  uint32_t divisor;  // 1: no division.
  // Use streaming stores: pays where no target is a source and the tensor exceeds the last-level
  // cache.
  bool past_cache;
  // What each source is multiplied by before it is folded; null: nothing. Not for kernels: see
  // fold_scaled().
  const double* factors = nullptr;
};

using Kernel = void (*)(const FoldJob& job);

// Sets this thread's floating-point mode to round to nearest and to keep subnormals, and restores
// it when destroyed, so that results do not depend on the program's mode. Takes a few nanoseconds
// where the mode is that already.
class PlainArithmetic {
 public:
  PlainArithmetic();
  PlainArithmetic(const PlainArithmetic&) = delete;
  PlainArithmetic& operator=(const PlainArithmetic&) = delete;
  ~PlainArithmetic();

 private:
  bool changed_ = false;
  std::fenv_t before_;  // Where changed.
};

// The fastest kernel this processor can run.
Kernel choose_kernel();

// All kernels that this processor can run, the fastest first. The last one runs on every processor
// of the architecture.
constexpr size_t kMostKernels = 3;
struct Kernels {
  Kernel at[kMostKernels];
  size_t count;
};
Kernels usable_kernels();

// Multiplies `count` values of a floating type by the factor, as TUTTI_PREMUL_SUM does: f64 in f64,
// the others in f32, and 16-bit floats are rounded once. Any alignment; `to` may be `from`.
void scale(Dtype dtype, void* to, const void* from, size_t count, double factor);

// As the kernel, of sources that scale() has multiplied by job.factors; a factor of 1 changes
// nothing. Allocates some KiB.
void fold_scaled(Kernel kernel, const FoldJob& job);

// memcpy() for tensors, whose speed does not depend on alignment. libc copies long runs by `rep
// movsb`, which on Zen 3 to 5 is seven times slower where the target's offset in its page is a
// little larger than the source's, as it is for malloc's large blocks.
void copy_bytes(void* to, const void* from, size_t bytes);

}  // namespace tutti

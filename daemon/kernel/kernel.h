// The reduction on the host's processor: one source, compiled for several processors, the best one
// chosen when the program runs. Also part of the client library: it allocates nothing and needs
// nothing of the daemon.
#pragma once

#include <cfenv>
#include <cstddef>
#include <cstdint>

#include "proto/types.h"

namespace tutti {

// Values of one type somewhere. 16-bit floats may meet their f32 accumulators.
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
// checked by the caller: see Device::reduce for what may meet.
struct FoldJob {
  const Target* targets;
  size_t target_count;  // At least 1; all of one dtype.
  const Operand* sources;
  size_t source_count;  // At least 1.
  size_t count;
  Op op;
  uint32_t divisor;  // 1: no division.
  // Store past the cache: pays where no target is a source and the whole exceeds the last-level
  // cache.
  bool past_cache;
};

using Kernel = void (*)(const FoldJob& job);

// While it lives, this thread's floats round to the nearest and keep what is small, whatever mode
// its program computes in: whoever runs a kernel, the bits are the same. Costs a few nanoseconds
// where that is the mode already.
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

// All that it can run, the fastest first; the last is what every processor of the architecture
// runs.
constexpr size_t kMostKernels = 3;
struct Kernels {
  Kernel at[kMostKernels];
  size_t count;
};
Kernels usable_kernels();

// memcpy() for tensors: as fast wherever they lie. libc copies long runs by `rep movsb`, which on
// Zen 3 to 5 is seven times slower where the target lies a little further in its page than the
// source, and malloc's large blocks begin 16 bytes into one.
void copy_bytes(void* to, const void* from, size_t bytes);

}  // namespace tutti

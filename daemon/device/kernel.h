// The reduction on the host's processor: one source, compiled for several processors, the best one
// chosen when the program runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/device/device.h"

namespace tutti {

// The arguments of Device::reduce, already checked.
struct ReduceJob {
  Target target;
  const Operand* sources;
  size_t source_count;
  size_t count;
  Op op;
  uint32_t divisor;
};

using Kernel = void (*)(const ReduceJob& job);

// The fastest kernel this processor can run.
Kernel choose_kernel();

void reduce_baseline(const ReduceJob& job);  // What every processor of the architecture runs.
void reduce_avx2(const ReduceJob& job);      // x86 only, as is the next.
void reduce_avx512(const ReduceJob& job);

}  // namespace tutti

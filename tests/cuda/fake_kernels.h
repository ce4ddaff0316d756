// The kernels of daemon/device/cuda_reduce.cu, compiled for the processor.
#pragma once

#include <cstddef>
#include <string_view>

#include "daemon/device/cuda_job.h"

namespace tutti::fake {

using Kernel = void (*)(const CudaJob& job, size_t packs);

// Null: there is no such kernel.
Kernel find_kernel(std::string_view name);
// Runs so many blocks, one after the other. Any thread.
void run_blocks(Kernel kernel, unsigned blocks, const CudaJob& job, size_t packs);

}  // namespace tutti::fake

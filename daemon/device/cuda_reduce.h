// The reduction on a CUDA device, and the room's way of turning CUDA's errors into a Status.
#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <string_view>

#include "daemon/device/device.h"

namespace tutti {

// "cannot allocate on cuda:0: out of memory (cudaErrorMemoryAllocation)". Clears CUDA's sticky copy
// of the error, unless it has poisoned the process.
Status cuda_status(cudaError_t error, std::string_view what);

// Queues a checked Device::reduce on `stream` of the current device. INVALID_ARGUMENT: more sources
// or targets than one launch takes (128, 64).
Status cuda_reduce(cudaStream_t stream, std::span<const Target> targets,
                   std::span<const Operand> sources, const Reduction& how);

}  // namespace tutti

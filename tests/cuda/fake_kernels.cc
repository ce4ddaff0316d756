#include "tests/cuda/fake_kernels.h"

#include <map>

// NOLINTNEXTLINE(bugprone-suspicious-include): the kernels are compiled as the GPU's are.
#include "daemon/device/cuda_reduce.cu"

namespace tutti::fake {

Kernel find_kernel(std::string_view name) {
  static const std::map<std::string_view, Kernel> kKernels = {
      {"tutti_reduce_f64", tutti_reduce_f64},   {"tutti_reduce_f32", tutti_reduce_f32},
      {"tutti_reduce_i8", tutti_reduce_i8},     {"tutti_reduce_u8", tutti_reduce_u8},
      {"tutti_reduce_i16", tutti_reduce_i16},   {"tutti_reduce_u16", tutti_reduce_u16},
      {"tutti_reduce_i32", tutti_reduce_i32},   {"tutti_reduce_u32", tutti_reduce_u32},
      {"tutti_reduce_i64", tutti_reduce_i64},   {"tutti_reduce_u64", tutti_reduce_u64},
      {"tutti_reduce_bits", tutti_reduce_bits},
  };
  const auto found = kKernels.find(name);
  return found == kKernels.end() ? nullptr : found->second;
}

void run_blocks(Kernel kernel, unsigned blocks, const CudaJob& job, size_t packs) {
  gridDim.x = blocks;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < kCudaThreads; ++threadIdx.x) kernel(job, packs);
}

}  // namespace tutti::fake

#include "daemon/device/cuda_kernels.h"

// TUTTI_CUDA_KERNELS is the path of the file that nvcc made.
asm(".pushsection .rodata\n"
    ".balign 64\n"
    "tutti_cuda_kernels_begin:\n"
    ".incbin \"" TUTTI_CUDA_KERNELS
    "\"\n"
    "tutti_cuda_kernels_end:\n"
    ".byte 0\n"
    ".popsection\n");

extern "C" const char tutti_cuda_kernels_begin[];
extern "C" const char tutti_cuda_kernels_end[];

namespace tutti {

std::span<const char> cuda_kernels() { return {tutti_cuda_kernels_begin, tutti_cuda_kernels_end}; }

}  // namespace tutti

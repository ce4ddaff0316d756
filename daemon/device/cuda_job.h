// What a kernel of cuda_reduce.cu is given: its one argument beside the number of packs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/kernel/kernel.h"
#include "proto/types.h"

namespace tutti {

// With 24 bytes for a source and 16 for a target, below the 4 KiB of a kernel's arguments.
inline constexpr size_t kCudaSourcesMax = 112;
inline constexpr size_t kCudaTargetsMax = 64;
inline constexpr int kCudaThreads = 256;
// A thread takes several packs at once where there are more than these: taken one after the other
// they would wait for memory. Fewer are spread over as many threads.
inline constexpr size_t kCudaSinglePacks = size_t{2048} * kCudaThreads;
constexpr int cuda_packs_each(int width) { return width >= 16 ? 1 : width >= 8 ? 2 : 4; }

// What the kernels of a stream find, in the device's memory; zero before the first one.
struct CudaVerdict {
  unsigned long long
      claimed;                // The newest kernel of which a block reads CudaJob::cancelled. NOLINT
  unsigned long long answer;  // Twice that number, plus 1 if the kernel is cancelled. NOLINT
};

// Targets and sources are aligned for their types.
struct CudaJob {
  Target targets[kCudaTargetsMax];
  Operand sources[kCudaSourcesMax];
  double factors[kCudaSourcesMax];  // Of premul_sum: of each source.
  uint32_t target_count;
  uint32_t source_count;
  size_t count;  // In elements.
  uint32_t divisor;
  // sum, prod, min or max; of floats premul_sum, if there are factors; of tutti_reduce_bits: band,
  // bor or bxor.
  Op op;
  uint8_t width;  // Of the kernel.
  // In pinned host memory, as the device sees it; null: none. The processor stores it while kernels
  // are queued: one that finds it other than 0 when it starts does nothing.
  const uint64_t* cancelled;
  CudaVerdict* verdict;       // Where there is such a word: what the kernel has found.
  unsigned long long launch;  // Counts the stream's kernels, from 1. NOLINT: as atomics take it.
};
static_assert(sizeof(CudaJob) + sizeof(size_t) <= 4096);

// The kernel for values of this type, and how many neighbouring values a thread takes at once where
// all memory is aligned for it.
struct CudaKernel {
  const char* name;
  int width;
};
// The width of tutti_reduce_f32 where all values are f32: wider packs would move by halves.
constexpr int kCudaF32Width = 4;
constexpr CudaKernel kCudaBits = {"tutti_reduce_bits", 16};
constexpr CudaKernel cuda_kernel(Dtype accumulator) {
  switch (accumulator) {
    case Dtype::f64:
      return {"tutti_reduce_f64", 2};
    case Dtype::i8:
      return {"tutti_reduce_i8", 16};
    case Dtype::u8:
      return {"tutti_reduce_u8", 16};
    case Dtype::i16:
      return {"tutti_reduce_i16", 8};
    case Dtype::u16:
      return {"tutti_reduce_u16", 8};
    case Dtype::i32:
      return {"tutti_reduce_i32", 4};
    case Dtype::u32:
      return {"tutti_reduce_u32", 4};
    case Dtype::i64:
      return {"tutti_reduce_i64", 2};
    case Dtype::u64:
      return {"tutti_reduce_u64", 2};
    case Dtype::boolean:
      return kCudaBits;
    case Dtype::f32:
    case Dtype::f16:
    case Dtype::bf16:
      break;
  }
  return {"tutti_reduce_f32", 8};  // f32 may stand for 16-bit floats, of which 8 are 16 bytes.
}

}  // namespace tutti

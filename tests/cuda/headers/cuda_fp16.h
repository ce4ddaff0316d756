// What cuda_reduce.cu needs of CUDA, for the processor: in place of CUDA's own header. The threads
// of a block run one after the other, in their order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

// NOLINTBEGIN(readability-identifier-naming): CUDA's names.
#define __device__
#define __global__
#define __grid_constant__ &/* As an argument by value that is not copied. */

struct dim3 {
  unsigned x = 0;
};
inline thread_local dim3 blockIdx, threadIdx, gridDim;

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline uint4 __ldcs(const uint4* from) { return *from; }
inline void __stcs(uint4* to, uint4 value) { *to = value; }

inline unsigned long long atomicMax(unsigned long long* at, unsigned long long value) {
  const unsigned long long before = *at;
  *at = std::max(before, value);
  return before;
}

// Right where only the first thread of a block has something to say.
inline int __syncthreads_or(int said) {
  static thread_local int first = 0;
  if (threadIdx.x == 0) first = said;
  return first;
}

struct __half {
  _Float16 value;
};
inline float __half2float(__half half) { return static_cast<float>(half.value); }
inline __half __float2half_rn(float value) { return {static_cast<_Float16>(value)}; }
inline __half __ushort_as_half(uint16_t bits) { return {std::bit_cast<_Float16>(bits)}; }
// NOLINTEND(readability-identifier-naming)

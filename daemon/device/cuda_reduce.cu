// The kernels of a CUDA device. They are compiled to a file of their own, which the device loads
// (cuda_device.cc): no runtime of CUDA is linked.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "daemon/device/cuda_job.h"
#include "daemon/kernel/arithmetic.h"

namespace tutti {
namespace {

// A stored bool: any byte but 0 is loaded as 1.
struct Truth {
  uint8_t byte;
};

__device__ inline uint8_t widened(Truth value) { return value.byte != 0; }
__device__ inline float widened(__half value) { return __half2float(value); }
__device__ inline float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
template <class T>
__device__ T widened(T value) {
  return value;
}

__device__ inline void narrow(float value, __half& to) { to = __float2half_rn(value); }
__device__ inline void narrow(float value, __nv_bfloat16& to) { to = __float2bfloat16_rn(value); }
template <class T>
__device__ void narrow(T value, T& to) {
  to = value;
}

// `width` neighbouring values that one thread works on. Aligned to 16 bytes or their whole size,
// they move in as few instructions as there can be.
template <class T, int width>
struct alignas(sizeof(T) * width < 16 ? sizeof(T) * width : 16) Pack {
  T values[width];
};

template <class Stored, class T, int width>
__device__ void load_as(T (&to)[width], const void* data, size_t pack) {
  const auto from = static_cast<const Pack<Stored, width>*>(data)[pack];
#pragma unroll
  for (int i = 0; i < width; ++i) to[i] = widened(from.values[i]);
}

template <class Stored, class T, int width>
__device__ void store_as(const T (&from)[width], void* data, size_t pack) {
  Pack<Stored, width> to;
#pragma unroll
  for (int i = 0; i < width; ++i) narrow(from[i], to.values[i]);
  static_cast<Pack<Stored, width>*>(data)[pack] = to;
}

template <class T, int width>
__device__ void load(T (&to)[width], const Operand& from, size_t pack) {
  if constexpr (std::is_same_v<T, float>) {
    if (from.dtype == Dtype::f16) return load_as<__half>(to, from.data, pack);
    if (from.dtype == Dtype::bf16) return load_as<__nv_bfloat16>(to, from.data, pack);
  }
  if constexpr (std::is_same_v<T, uint8_t>)
    if (from.dtype == Dtype::boolean) return load_as<Truth>(to, from.data, pack);
  load_as<T>(to, from.data, pack);
}

template <class T, int width>
__device__ void store(const T (&from)[width], const Target& to, size_t pack) {
  if constexpr (std::is_same_v<T, float>) {
    if (to.dtype == Dtype::f16) return store_as<__half>(from, to.data, pack);
    if (to.dtype == Dtype::bf16) return store_as<__nv_bfloat16>(from, to.data, pack);
  }
  store_as<T>(from, to.data, pack);
}

// The value as a memory of this type would keep it.
__device__ inline float rounded(float value, Dtype stored) {
  if (stored == Dtype::f16) return __half2float(__float2half_rn(value));
  if (stored == Dtype::bf16) return __bfloat162float(__float2bfloat16_rn(value));
  return value;
}
__device__ inline double rounded(double value, Dtype) { return value; }

// Loads a source, multiplied by its factor where it has one: see scale() of kernel.h.
template <Op op, class T, int width>
__device__ void load_source(T (&to)[width], const CudaJob& job, uint32_t source, size_t pack) {
  load(to, job.sources[source], pack);
  if constexpr (op == Op::premul_sum)
    if (const double factor = job.factors[source]; factor != 1)
#pragma unroll
      for (int i = 0; i < width; ++i)
        to[i] = rounded(to[i] * static_cast<T>(factor), job.sources[source].dtype);
}

template <Op op, class T, int width>
__device__ void reduce_pack(const CudaJob& job, size_t pack) {
  T result[width];
  load_source<op>(result, job, 0, pack);
#pragma unroll 4
  for (uint32_t s = 1; s < job.source_count; ++s) {
    T next[width];
    load_source<op>(next, job, s, pack);
#pragma unroll
    for (int i = 0; i < width; ++i) result[i] = combine<op>(result[i], next[i]);
  }
  if constexpr (std::is_floating_point_v<T>)
    if (job.divisor != 1)
#pragma unroll
      for (int i = 0; i < width; ++i) result[i] /= static_cast<T>(job.divisor);
  for (uint32_t t = 0; t < job.target_count; ++t) store(result, job.targets[t], pack);
}

// The first `packs` packs of `width` values, then the values behind them one by one.
template <Op op, class T, int width>
__device__ void reduce(const CudaJob& job, size_t packs) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  const size_t self = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (size_t i = self; i < packs; i += stride) reduce_pack<op, T, width>(job, i);
  for (size_t i = packs * width + self; i < job.count; i += stride) reduce_pack<op, T, 1>(job, i);
}

// Whether the kernel shall do nothing. Reads of the host's word go over PCIe one after the other,
// 1 us each, so the first block to come reads it for all.
__device__ bool is_cancelled(const CudaJob& job) {
  bool found = false;
  if (threadIdx.x == 0 && job.cancelled != nullptr) {
    const volatile uint64_t* word = job.cancelled;
    volatile unsigned long long* answer = &job.verdict->answer;
    if (atomicMax(&job.verdict->claimed, job.launch) < job.launch)
      *answer = job.launch << 1 | (*word != 0 ? 1 : 0);
    while (*answer >> 1 < job.launch) {
    }
    found = (*answer & 1) != 0;
  }
  return __syncthreads_or(found) != 0;
}

template <Op op, class T, int width>
__device__ void reduce_by_width(const CudaJob& job, size_t packs) {
  if constexpr (std::is_same_v<T, float>)
    if (job.width == kCudaF32Width) return reduce<op, T, kCudaF32Width>(job, packs);
  reduce<op, T, width>(job, packs);
}

template <class T, Dtype dtype>
__device__ void reduce_numbers(const CudaJob& job, size_t packs) {
  constexpr int width = cuda_kernel(dtype).width;
  if (is_cancelled(job)) return;
  switch (job.op) {
    case Op::min:
      return reduce_by_width<Op::min, T, width>(job, packs);
    case Op::max:
      return reduce_by_width<Op::max, T, width>(job, packs);
    case Op::prod:
      return reduce_by_width<Op::prod, T, width>(job, packs);
    case Op::premul_sum:
      if constexpr (std::is_floating_point_v<T>)
        return reduce_by_width<Op::premul_sum, T, width>(job, packs);
      [[fallthrough]];
    default:
      return reduce_by_width<Op::sum, T, width>(job, packs);
  }
}

__device__ void reduce_bits(const CudaJob& job, size_t packs) {
  if (is_cancelled(job)) return;
  if (job.op == Op::band) return reduce<Op::band, uint8_t, kCudaBits.width>(job, packs);
  if (job.op == Op::bor) return reduce<Op::bor, uint8_t, kCudaBits.width>(job, packs);
  reduce<Op::bxor, uint8_t, kCudaBits.width>(job, packs);
}

}  // namespace
}  // namespace tutti

// By the names of cuda_kernel().
extern "C" {

__global__ void tutti_reduce_f64(const __grid_constant__ tutti::CudaJob job, size_t packs) {
  tutti::reduce_numbers<double, tutti::Dtype::f64>(job, packs);
}
__global__ void tutti_reduce_f32(const __grid_constant__ tutti::CudaJob job, size_t packs) {
  tutti::reduce_numbers<float, tutti::Dtype::f32>(job, packs);
}
__global__ void tutti_reduce_i8(const __grid_constant__ tutti::CudaJob job, size_t packs) {
  tutti::reduce_numbers<int8_t, tutti::Dtype::i8>(job, packs);
}
__global__ void tutti_reduce_u8(const __grid_constant__ tutti::CudaJob job, size_t packs) {
  tutti::reduce_numbers<uint8_t, tutti::Dtype::u8>(job, packs);
}
__global__ void tutti_reduce_i16(const __grid_constant__ tutti::CudaJob job, size_t packs) {
  tutti::reduce_numbers<int16_t, tutti::Dtype::i16>(job, packs);
}
__global__ void tutti_reduce_u16(const __grid_constant__ tutti::CudaJob job, size_t packs) {
  tutti::reduce_numbers<uint16_t, tutti::Dtype::u16>(job, packs);
}
__global__ void tutti_reduce_i32(const __grid_constant__ tutti::CudaJob job, size_t packs) {
  tutti::reduce_numbers<int32_t, tutti::Dtype::i32>(job, packs);
}
__global__ void tutti_reduce_u32(const __grid_constant__ tutti::CudaJob job, size_t packs) {
  tutti::reduce_numbers<uint32_t, tutti::Dtype::u32>(job, packs);
}
__global__ void tutti_reduce_i64(const __grid_constant__ tutti::CudaJob job, size_t packs) {
  tutti::reduce_numbers<int64_t, tutti::Dtype::i64>(job, packs);
}
__global__ void tutti_reduce_u64(const __grid_constant__ tutti::CudaJob job, size_t packs) {
  tutti::reduce_numbers<uint64_t, tutti::Dtype::u64>(job, packs);
}
__global__ void tutti_reduce_bits(const __grid_constant__ tutti::CudaJob job, size_t packs) {
  tutti::reduce_bits(job, packs);
}

}  // extern "C"

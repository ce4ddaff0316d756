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

// The conversions give another NaN than processors do.
__device__ inline void narrow(float value, __half& to) {
  to = value == value ? __float2half_rn(value) : __ushort_as_half(0x7e00);
}
__device__ inline void narrow(float value, __nv_bfloat16& to) {
  to = value == value ? __float2bfloat16_rn(value) : __ushort_as_bfloat16(0x7fc0);
}
template <class T>
__device__ void narrow(T value, T& to) {
  to = value;
}

// `width` neighbouring values. Aligned to 16 bytes or their whole size, they move in as few
// instructions as there can be.
template <class T, int width>
struct alignas(sizeof(T) * width < 16 ? sizeof(T) * width : 16) Pack {
  T values[width];
};

// Packs of several values are marked for use once (.cs): else a GPU reads other processes' memory
// at half its speed where an allocation's size is no multiple of 64 KiB.
template <class T, int width>
__device__ Pack<T, width> fetch(const Pack<T, width>* from) {
  if constexpr (width == 1) {
    return *from;
  } else {
    Pack<T, width> pack;
    static_assert(sizeof(pack) % sizeof(uint4) == 0);
#pragma unroll
    for (size_t i = 0; i < sizeof(pack) / sizeof(uint4); ++i)
      reinterpret_cast<uint4*>(&pack)[i] = __ldcs(reinterpret_cast<const uint4*>(from) + i);
    return pack;
  }
}

template <class T, int width>
__device__ void put(const Pack<T, width>& pack, Pack<T, width>* to) {
  if constexpr (width == 1) {
    *to = pack;
  } else {
#pragma unroll
    for (size_t i = 0; i < sizeof(pack) / sizeof(uint4); ++i)
      __stcs(reinterpret_cast<uint4*>(to) + i, reinterpret_cast<const uint4*>(&pack)[i]);
  }
}

// What one thread works on at a time: `each` packs, kCudaThreads apart.
template <class T, int width, int each>
struct Packs {
  T values[each][width];
};

template <class Stored, class T, int width, int each>
__device__ void load_as(Packs<T, width, each>& to, const void* data, size_t first) {
  const auto* from = static_cast<const Pack<Stored, width>*>(data) + first;
#pragma unroll
  for (int p = 0; p < each; ++p) {
    const Pack<Stored, width> pack = fetch(from + p * kCudaThreads);
#pragma unroll
    for (int i = 0; i < width; ++i) to.values[p][i] = widened(pack.values[i]);
  }
}

template <class Stored, class T, int width, int each>
__device__ void store_as(const Packs<T, width, each>& from, void* data, size_t first) {
  auto* to = static_cast<Pack<Stored, width>*>(data) + first;
#pragma unroll
  for (int p = 0; p < each; ++p) {
    Pack<Stored, width> pack;
#pragma unroll
    for (int i = 0; i < width; ++i) narrow(from.values[p][i], pack.values[i]);
    put(pack, to + p * kCudaThreads);
  }
}

template <class T, int width, int each>
__device__ void load(Packs<T, width, each>& to, const Operand& from, size_t first) {
  if constexpr (std::is_same_v<T, float> && width != kCudaF32Width) {
    if (from.dtype == Dtype::f16) return load_as<__half>(to, from.data, first);
    if (from.dtype == Dtype::bf16) return load_as<__nv_bfloat16>(to, from.data, first);
  }
  if constexpr (std::is_same_v<T, uint8_t>)
    if (from.dtype == Dtype::boolean) return load_as<Truth>(to, from.data, first);
  load_as<T>(to, from.data, first);
}

template <class T, int width, int each>
__device__ void store(const Packs<T, width, each>& from, const Target& to, size_t first) {
  if constexpr (std::is_same_v<T, float> && width != kCudaF32Width) {
    if (to.dtype == Dtype::f16) return store_as<__half>(from, to.data, first);
    if (to.dtype == Dtype::bf16) return store_as<__nv_bfloat16>(from, to.data, first);
  }
  store_as<T>(from, to.data, first);
}

// Calls `function` for each value of `packs`, and the one at its place in `others`.
template <class T, int width, int each, class Function>
__device__ void for_each(Packs<T, width, each>& packs, const Packs<T, width, each>& others,
                         const Function& function) {
#pragma unroll
  for (int p = 0; p < each; ++p)
#pragma unroll
    for (int i = 0; i < width; ++i) function(packs.values[p][i], others.values[p][i]);
}

// The value as a memory of this type would keep it.
__device__ inline float rounded(float value, Dtype stored) {
  if (stored == Dtype::f16) return __half2float(__float2half_rn(value));
  if (stored == Dtype::bf16) return __bfloat162float(__float2bfloat16_rn(value));
  return value;
}
__device__ inline double rounded(double value, Dtype) { return value; }

// Loads a source, multiplied by its factor where it has one: see scale() of kernel.h.
template <Op op, class T, int width, int each>
__device__ void load_source(Packs<T, width, each>& to, const CudaJob& job, uint32_t source,
                            size_t first) {
  load(to, job.sources[source], first);
  if constexpr (op == Op::premul_sum)
    if (const double factor = job.factors[source]; factor != 1)
      for_each(to, to, [&](T& value, const T&) {
        value = rounded(value * static_cast<T>(factor), job.sources[source].dtype);
      });
}

template <Op op, class T, int width, int each>
__device__ void reduce_packs(const CudaJob& job, size_t first) {
  Packs<T, width, each> result;
  load_source<op>(result, job, 0, first);
#pragma unroll(each == 1 ? 4 : 1)
  for (uint32_t s = 1; s < job.source_count; ++s) {
    Packs<T, width, each> next;
    load_source<op>(next, job, s, first);
    for_each(result, next, [](T& value, const T& other) { value = combine<op>(value, other); });
  }
  if constexpr (std::is_floating_point_v<T>)
    if (job.source_count > 1)
      for_each(result, result, [](T& value, const T&) {
        if (value != value) value = kNan<T>;
      });
  if constexpr (std::is_floating_point_v<T>)
    if (job.divisor != 1)
      for_each(result, result, [&](T& value, const T&) { value /= static_cast<T>(job.divisor); });
  for (uint32_t t = 0; t < job.target_count; ++t) store(result, job.targets[t], first);
}

// The first `packs` packs of `width` values, then the values behind them one by one.
template <Op op, class T, int width>
__device__ void reduce(const CudaJob& job, size_t packs) {
  constexpr int each = cuda_packs_each(width);
  constexpr size_t tile = size_t{kCudaThreads} * each;
  const size_t tiles = packs > kCudaSinglePacks ? packs / tile : 0;
  for (size_t i = blockIdx.x; i < tiles; i += gridDim.x)
    reduce_packs<op, T, width, each>(job, i * tile + threadIdx.x);
  const size_t stride = size_t{gridDim.x} * kCudaThreads;
  const size_t self = size_t{blockIdx.x} * kCudaThreads + threadIdx.x;
  for (size_t i = tiles * tile + self; i < packs; i += stride)
    reduce_packs<op, T, width, 1>(job, i);
  for (size_t i = packs * width + self; i < job.count; i += stride)
    reduce_packs<op, T, 1, 1>(job, i);
}

// Whether the kernel shall do nothing. Reads of the host's word go over PCIe one after the other,
// 1 us each, so the first block to come reads it for all.
__device__ bool is_cancelled(const CudaJob& job) {
  bool found = false;
  if (threadIdx.x == 0 && job.cancelled != nullptr) {
    const volatile uint64_t* word = job.cancelled;
    volatile unsigned long long* answer = &job.verdict->answer;
    if (*answer >> 1 < job.launch && atomicMax(&job.verdict->claimed, job.launch) < job.launch)
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

__global__ void tutti_reduce_f64(const tutti::CudaJob __grid_constant__ job, size_t packs) {
  tutti::reduce_numbers<double, tutti::Dtype::f64>(job, packs);
}
__global__ void tutti_reduce_f32(const tutti::CudaJob __grid_constant__ job, size_t packs) {
  tutti::reduce_numbers<float, tutti::Dtype::f32>(job, packs);
}
__global__ void tutti_reduce_i8(const tutti::CudaJob __grid_constant__ job, size_t packs) {
  tutti::reduce_numbers<int8_t, tutti::Dtype::i8>(job, packs);
}
__global__ void tutti_reduce_u8(const tutti::CudaJob __grid_constant__ job, size_t packs) {
  tutti::reduce_numbers<uint8_t, tutti::Dtype::u8>(job, packs);
}
__global__ void tutti_reduce_i16(const tutti::CudaJob __grid_constant__ job, size_t packs) {
  tutti::reduce_numbers<int16_t, tutti::Dtype::i16>(job, packs);
}
__global__ void tutti_reduce_u16(const tutti::CudaJob __grid_constant__ job, size_t packs) {
  tutti::reduce_numbers<uint16_t, tutti::Dtype::u16>(job, packs);
}
__global__ void tutti_reduce_i32(const tutti::CudaJob __grid_constant__ job, size_t packs) {
  tutti::reduce_numbers<int32_t, tutti::Dtype::i32>(job, packs);
}
__global__ void tutti_reduce_u32(const tutti::CudaJob __grid_constant__ job, size_t packs) {
  tutti::reduce_numbers<uint32_t, tutti::Dtype::u32>(job, packs);
}
__global__ void tutti_reduce_i64(const tutti::CudaJob __grid_constant__ job, size_t packs) {
  tutti::reduce_numbers<int64_t, tutti::Dtype::i64>(job, packs);
}
__global__ void tutti_reduce_u64(const tutti::CudaJob __grid_constant__ job, size_t packs) {
  tutti::reduce_numbers<uint64_t, tutti::Dtype::u64>(job, packs);
}
__global__ void tutti_reduce_bits(const tutti::CudaJob __grid_constant__ job, size_t packs) {
  tutti::reduce_bits(job, packs);
}

}  // extern "C"

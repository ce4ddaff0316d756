#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <string>

#include "daemon/device/cuda_reduce.h"
#include "daemon/kernel/arithmetic.h"

namespace tutti {
namespace {

// With 16 bytes each, below the 4 KiB of launch arguments.
constexpr int kMaxSources = 128;
constexpr int kMaxTargets = 64;
constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 2048;  // Enough to fill any device; each thread strides on.

struct Job {
  Target targets[kMaxTargets];
  Operand sources[kMaxSources];
  int target_count;
  int source_count;
  size_t count;
  uint32_t divisor;
};

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
// they move in as few instructions as there can be; a lone value moves byte by byte, from any
// alignment.
template <class T, int width>
struct alignas(sizeof(T) * width < 16 ? sizeof(T) * width : 16) Pack {
  T values[width];
};

template <class Stored, class T, int width>
__device__ void load_as(T (&to)[width], const void* data, size_t pack) {
  if constexpr (width == 1) {
    Stored value;
    memcpy(&value, static_cast<const unsigned char*>(data) + pack * sizeof(Stored), sizeof(value));
    to[0] = widened(value);
  } else {
    const auto from = static_cast<const Pack<Stored, width>*>(data)[pack];
#pragma unroll
    for (int i = 0; i < width; ++i) to[i] = widened(from.values[i]);
  }
}

template <class Stored, class T, int width>
__device__ void store_as(const T (&from)[width], void* data, size_t pack) {
  if constexpr (width == 1) {
    Stored value;
    narrow(from[0], value);
    memcpy(static_cast<unsigned char*>(data) + pack * sizeof(Stored), &value, sizeof(value));
  } else {
    Pack<Stored, width> to;
#pragma unroll
    for (int i = 0; i < width; ++i) narrow(from[i], to.values[i]);
    static_cast<Pack<Stored, width>*>(data)[pack] = to;
  }
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

template <Op op, class T, int width>
__device__ void reduce_pack(const Job& job, size_t pack) {
  T result[width];
  load(result, job.sources[0], pack);
#pragma unroll 4
  for (int s = 1; s < job.source_count; ++s) {
    T next[width];
    load(next, job.sources[s], pack);
#pragma unroll
    for (int i = 0; i < width; ++i) result[i] = combine<op>(result[i], next[i]);
  }
  if constexpr (std::is_floating_point_v<T>)
    if (job.divisor != 1)
#pragma unroll
      for (int i = 0; i < width; ++i) result[i] /= static_cast<T>(job.divisor);
  for (int t = 0; t < job.target_count; ++t) store(result, job.targets[t], pack);
}

// The first `packs` packs of `width` values, then the values behind them one by one.
template <Op op, class T, int width>
__global__ void reduce_kernel(__grid_constant__ const Job job, size_t packs) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  const size_t self = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (size_t i = self; i < packs; i += stride) reduce_pack<op, T, width>(job, i);
  for (size_t i = packs * width + self; i < job.count; i += stride) reduce_pack<op, T, 1>(job, i);
}

bool aligned(const void* data, Dtype dtype, int width) {
  const size_t alignment = std::min<size_t>(size_of(dtype) * width, 16);
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

bool all_aligned(const Job& job, int width) {
  bool all = true;
  for (int t = 0; t < job.target_count; ++t)
    all &= aligned(job.targets[t].data, job.targets[t].dtype, width);
  for (int s = 0; s < job.source_count; ++s)
    all &= aligned(job.sources[s].data, job.sources[s].dtype, width);
  return all;
}

template <Op op, class T>
cudaError_t launch(cudaStream_t stream, const Job& job) {
  // 16 bytes of the narrowest type that takes part: f32 may stand for 16-bit floats.
  constexpr int width = std::is_same_v<T, float> ? 8 : 16 / sizeof(T);
  const size_t packs = all_aligned(job, width) ? job.count / width : 0;
  const size_t work = std::max<size_t>(packs, job.count - packs * width);
  const auto blocks = std::min<int64_t>((work + kThreads - 1) / kThreads, kMaxBlocks);
  reduce_kernel<op, T, width><<<static_cast<int>(blocks), kThreads, 0, stream>>>(job, packs);
  return cudaGetLastError();
}

template <class T>
cudaError_t launch_op(cudaStream_t stream, const Job& job, Op op) {
  switch (op) {
    case Op::min:
      return launch<Op::min, T>(stream, job);
    case Op::max:
      return launch<Op::max, T>(stream, job);
    case Op::prod:
      return launch<Op::prod, T>(stream, job);
    case Op::sum:
    case Op::mean:
    case Op::premul_sum:
      return launch<Op::sum, T>(stream, job);
    case Op::band:
    case Op::bor:
    case Op::bxor:
      break;
  }
  return cudaErrorInvalidValue;
}

// Of bits the width of a value does not matter: bytes are combined.
cudaError_t launch_bits(cudaStream_t stream, Job job, Op op) {
  job.count *= size_of(job.targets[0].dtype);
  if (op == Op::band) return launch<Op::band, uint8_t>(stream, job);
  if (op == Op::bor) return launch<Op::bor, uint8_t>(stream, job);
  return launch<Op::bxor, uint8_t>(stream, job);
}

// True where one is (sum, max and bor), where all are (prod, min and band), or where an odd number
// is (bxor). As numbers 0 and 1 they are combined by their bits.
cudaError_t launch_truths(cudaStream_t stream, const Job& job, Op op) {
  const bool all = op == Op::prod || op == Op::min || op == Op::band;
  if (op != Op::bxor) op = all ? Op::band : Op::bor;
  return launch_bits(stream, job, op);
}

cudaError_t launch_type(cudaStream_t stream, const Job& job, Op op) {
  const Dtype dtype = job.targets[0].dtype;
  if (is_bitwise(op) && is_floating(dtype)) return cudaErrorInvalidValue;
  if (is_bitwise(op) && dtype != Dtype::boolean) return launch_bits(stream, job, op);
  switch (dtype) {
    case Dtype::f64:
      return launch_op<double>(stream, job, op);
    case Dtype::i8:
      return launch_op<int8_t>(stream, job, op);
    case Dtype::u8:
      return launch_op<uint8_t>(stream, job, op);
    case Dtype::i16:
      return launch_op<int16_t>(stream, job, op);
    case Dtype::u16:
      return launch_op<uint16_t>(stream, job, op);
    case Dtype::i32:
      return launch_op<int32_t>(stream, job, op);
    case Dtype::u32:
      return launch_op<uint32_t>(stream, job, op);
    case Dtype::i64:
      return launch_op<int64_t>(stream, job, op);
    case Dtype::u64:
      return launch_op<uint64_t>(stream, job, op);
    case Dtype::boolean:
      return launch_truths(stream, job, op);
    case Dtype::f32:
    case Dtype::f16:
    case Dtype::bf16:
      return launch_op<float>(stream, job, op);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

Status cuda_reduce(cudaStream_t stream, std::span<const Target> targets,
                   std::span<const Operand> sources, const Reduction& how) {
  if (how.count == 0) return {};
  if (sources.size() > kMaxSources || targets.size() > kMaxTargets)
    return invalid_argument("a CUDA device reduces at most " + std::to_string(kMaxSources) +
                            " sources into " + std::to_string(kMaxTargets) +
                            " targets at once, not " + std::to_string(sources.size()) + " into " +
                            std::to_string(targets.size()));
  Job job = {.target_count = static_cast<int>(targets.size()),
             .source_count = static_cast<int>(sources.size()),
             .count = how.count,
             .divisor = how.divisor};
  std::ranges::copy(targets, job.targets);
  std::ranges::copy(sources, job.sources);
  return cuda_status(launch_type(stream, job, how.op), "cannot reduce");
}

}  // namespace tutti

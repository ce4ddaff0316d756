// The loops behind every host kernel. Each kernel file includes this once and is compiled for its
// own processor; hence internal linkage, and nothing of the library that could leave a shared copy
// behind. Values are read and written with memcpy, so any alignment is allowed.
//
// The target may be exactly one of the sources: each element is read before it is written, and
// nothing else of it is read later. That is what `ivdep` tells the compiler.
#pragma once

#include "daemon/device/arithmetic.h"
#include "daemon/device/half.h"
#include "daemon/device/kernel.h"

namespace tutti {
namespace {

// Partial results of one block: small enough to stay in the first-level cache.
constexpr size_t kBlockBytes = 8192;
constexpr size_t kFewSources = 4;

template <class T>
T load(const std::byte* from, size_t index) {
  T value;
  __builtin_memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store(std::byte* to, size_t index, T value) {
  __builtin_memcpy(to + index * sizeof(T), &value, sizeof(T));
}

// A run-time choice becomes a compile-time one: calls `body.operator()<op>()`.
template <class Body>
void with_op(Op op, Body body) {
  switch (op) {
    case Op::min:
      return body.template operator()<Op::min>();
    case Op::max:
      return body.template operator()<Op::max>();
    case Op::prod:
      return body.template operator()<Op::prod>();
    case Op::sum:
    case Op::mean:
      return body.template operator()<Op::sum>();
  }
}

// ---- All values of one native type.

template <class T, Op op, size_t sources, bool divide>
void fold(std::byte* target, const std::byte* const* inputs, size_t count, T divisor) {
  const std::byte* input[sources];
  for (size_t s = 0; s < sources; ++s) input[s] = inputs[s];
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    T value = load<T>(input[0], i);
    for (size_t s = 1; s < sources; ++s) value = combine<op>(value, load<T>(input[s], i));
    if constexpr (divide) value /= divisor;
    store(target, i, value);
  }
}

template <class T, Op op, bool divide>
void fold_few(std::byte* target, const std::byte* const* inputs, size_t sources, size_t count,
              T divisor) {
  switch (sources) {
    case 1:
      return fold<T, op, 1, divide>(target, inputs, count, divisor);
    case 2:
      return fold<T, op, 2, divide>(target, inputs, count, divisor);
    case 3:
      return fold<T, op, 3, divide>(target, inputs, count, divisor);
    default:
      return fold<T, op, 4, divide>(target, inputs, count, divisor);
  }
}

// Block by block: the first four sources into `partial`, three more at a time, the rest and the
// division into the target. So memory is passed over once, in the order of the sources.
template <class T, Op op, bool divide>
void fold_many(const ReduceJob& job, T divisor) {
  constexpr size_t kBlock = kBlockBytes / sizeof(T);
  alignas(64) std::byte partial[kBlockBytes];
  for (size_t first = 0; first < job.count; first += kBlock) {
    const size_t count = job.count - first < kBlock ? job.count - first : kBlock;
    const std::byte* inputs[kFewSources];
    size_t taken = 0;
    const auto fill = [&](size_t from) {
      for (; from < kFewSources && taken < job.source_count; ++from, ++taken)
        inputs[from] = static_cast<const std::byte*>(job.sources[taken].data) + first * sizeof(T);
      return from;
    };
    size_t filled = fill(0);
    while (taken < job.source_count) {
      fold<T, op, kFewSources, false>(partial, inputs, count, divisor);
      inputs[0] = partial;
      filled = fill(1);
    }
    std::byte* target = static_cast<std::byte*>(job.target.data) + first * sizeof(T);
    fold_few<T, op, divide>(target, inputs, filled, count, divisor);
  }
}

template <class T, Op op, bool divide>
void fold_all(const ReduceJob& job) {
  const T divisor = static_cast<T>(job.divisor);
  if (job.source_count > kFewSources) return fold_many<T, op, divide>(job, divisor);
  const std::byte* inputs[kFewSources];
  for (size_t s = 0; s < job.source_count; ++s)
    inputs[s] = static_cast<const std::byte*>(job.sources[s].data);
  fold_few<T, op, divide>(static_cast<std::byte*>(job.target.data), inputs, job.source_count,
                          job.count, divisor);
}

template <class T>
void reduce_native(const ReduceJob& job) {
  if (job.source_count == 1 && job.divisor == 1) {
    if (job.target.data != job.sources[0].data)
      __builtin_memcpy(job.target.data, job.sources[0].data, job.count * sizeof(T));
    return;
  }
  with_op(job.op, [&]<Op op>() {
    if constexpr (std::is_floating_point_v<T>)
      if (job.divisor != 1) return fold_all<T, op, true>(job);
    fold_all<T, op, false>(job);
  });
}

// ---- 16-bit floats, mixed with f32 or not: through a block of f32.

template <class T>
void load_block(float* values, const std::byte* from, size_t count) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) values[i] = to_float(load<T>(from, i));
}

template <class T, Op op>
void combine_block(float* values, const std::byte* from, size_t count) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) values[i] = combine<op>(values[i], to_float(load<T>(from, i)));
}

template <class T>
void store_block(std::byte* to, const float* values, size_t count) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    T value;
    from_float(values[i], value);
    store(to, i, value);
  }
}

void divide_block(float* values, size_t count, float divisor) {
  for (size_t i = 0; i < count; ++i) values[i] /= divisor;
}

// Calls `body.operator()<T>()` with the type of a value that meets f32.
template <class Body>
void with_float(Dtype dtype, Body body) {
  if (dtype == Dtype::f16) return body.template operator()<F16>();
  if (dtype == Dtype::bf16) return body.template operator()<Bf16>();
  body.template operator()<float>();
}

template <Op op>
void reduce_mixed_op(const ReduceJob& job) {
  constexpr size_t kBlock = kBlockBytes / sizeof(float);
  alignas(64) float values[kBlock];
  for (size_t first = 0; first < job.count; first += kBlock) {
    const size_t count = job.count - first < kBlock ? job.count - first : kBlock;
    for (size_t s = 0; s < job.source_count; ++s) {
      with_float(job.sources[s].dtype, [&]<class T>() {
        const auto* from = static_cast<const std::byte*>(job.sources[s].data) + first * sizeof(T);
        if (s == 0) return load_block<T>(values, from, count);
        combine_block<T, op>(values, from, count);
      });
    }
    if (job.divisor != 1) divide_block(values, count, static_cast<float>(job.divisor));
    with_float(job.target.dtype, [&]<class T>() {
      store_block<T>(static_cast<std::byte*>(job.target.data) + first * sizeof(T), values, count);
    });
  }
}

void reduce_mixed(const ReduceJob& job) {
  with_op(job.op, [&]<Op op>() { reduce_mixed_op<op>(job); });
}

bool all_f32(const ReduceJob& job) {
  bool all = job.target.dtype == Dtype::f32;
  for (size_t s = 0; s < job.source_count; ++s) all &= job.sources[s].dtype == Dtype::f32;
  return all;
}

void run_kernel(const ReduceJob& job) {
  switch (job.target.dtype) {
    case Dtype::f64:
      return reduce_native<double>(job);
    case Dtype::i8:
      return reduce_native<int8_t>(job);
    case Dtype::u8:
      return reduce_native<uint8_t>(job);
    case Dtype::i32:
      return reduce_native<int32_t>(job);
    case Dtype::i64:
      return reduce_native<int64_t>(job);
    case Dtype::f32:
    case Dtype::f16:
    case Dtype::bf16:
      return all_f32(job) ? reduce_native<float>(job) : reduce_mixed(job);
  }
}

}  // namespace
}  // namespace tutti

// The loops behind every host kernel. Each kernel file includes this once and is compiled for its
// own processor; hence internal linkage, and nothing of the library that could leave a shared copy
// behind. Values are read and written with memcpy, so any alignment is allowed.
//
// The target may be exactly one of the sources: each element is read before it is written, and
// nothing else of it is read later. That is what `ivdep` tells the compiler.
#pragma once

#include "daemon/kernel/arithmetic.h"
#include "daemon/kernel/kernel.h"
#include "daemon/kernel/loose.h"

namespace tutti {
namespace {

// Partial results of one block: small enough to stay in the first-level cache.
constexpr size_t kBlockBytes = 4096;
// Keeps blocks that lie one behind the other from sharing all their cache sets.
constexpr size_t kPadBytes = 192;
constexpr size_t kFewSources = 4;

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

// Where the blocks of a job's sources and target are, as values of type T. The general case is T
// itself, in place.
template <class T>
struct Blocks {
  explicit Blocks(const FoldJob& from) : job(from) {}
  const std::byte* source(size_t index, size_t /*slot*/, size_t first, size_t /*count*/) {
    return static_cast<const std::byte*>(job.sources[index].data) + first * sizeof(T);
  }
  std::byte* target(size_t first) {
    return static_cast<std::byte*>(job.targets[0].data) + first * sizeof(T);
  }
  void finish(size_t /*first*/, size_t /*count*/) {}

  const FoldJob& job;
};

// 16-bit floats are widened into blocks of f32 (one for each slot of `inputs`) and narrowed from
// one.
template <class Halves>
struct MixedBlocks {
  explicit MixedBlocks(const FoldJob& from) : job(from) {}
  const std::byte* source(size_t index, size_t slot, size_t first, size_t count) {
    const auto [data, dtype] = job.sources[index];
    const std::byte* from = static_cast<const std::byte*>(data) + first * size_of(dtype);
    if (dtype == Dtype::f32) return from;
    Halves::widen(dtype, wide[slot], from, count);
    return reinterpret_cast<const std::byte*>(wide[slot]);
  }
  std::byte* target(size_t first) {
    if (job.targets[0].dtype != Dtype::f32) return reinterpret_cast<std::byte*>(result);
    return static_cast<std::byte*>(job.targets[0].data) + first * sizeof(float);
  }
  void finish(size_t first, size_t count) {
    const auto [data, dtype] = job.targets[0];
    if (dtype == Dtype::f32) return;
    Halves::narrow(dtype, static_cast<std::byte*>(data) + first * size_of(dtype), result, count);
  }

  const FoldJob& job;
  alignas(64) float wide[kFewSources][(kBlockBytes + kPadBytes) / sizeof(float)];
  alignas(64) float result[(kBlockBytes + kPadBytes) / sizeof(float)];
};

// Block by block: the first four sources into `partial`, three more at a time, the rest and the
// division into the target. So memory is passed over once, in the order of the sources.
template <class T, Op op, bool divide, class Blocks>
void fold_blocks(const FoldJob& job, T divisor, Blocks blocks) {
  constexpr size_t kBlock = kBlockBytes / sizeof(T);
  alignas(64) std::byte partial[kBlockBytes + kPadBytes];
  for (size_t first = 0; first < job.count; first += kBlock) {
    const size_t count = job.count - first < kBlock ? job.count - first : kBlock;
    const std::byte* inputs[kFewSources];
    size_t taken = 0;
    const auto fill = [&](size_t slot) {
      for (; slot < kFewSources && taken < job.source_count; ++slot, ++taken)
        inputs[slot] = blocks.source(taken, slot, first, count);
      return slot;
    };
    size_t filled = fill(0);
    while (taken < job.source_count) {
      fold<T, op, kFewSources, false>(partial, inputs, count, divisor);
      inputs[0] = partial;
      filled = fill(1);
    }
    fold_few<T, op, divide>(blocks.target(first), inputs, filled, count, divisor);
    blocks.finish(first, count);
  }
}

template <class T, Op op, bool divide>
void fold_all(const FoldJob& job) {
  const T divisor = static_cast<T>(job.divisor);
  if (job.source_count > kFewSources)
    return fold_blocks<T, op, divide>(job, divisor, Blocks<T>(job));
  const std::byte* inputs[kFewSources];
  for (size_t s = 0; s < job.source_count; ++s)
    inputs[s] = static_cast<const std::byte*>(job.sources[s].data);
  fold_few<T, op, divide>(static_cast<std::byte*>(job.targets[0].data), inputs, job.source_count,
                          job.count, divisor);
}

template <class T>
void reduce_native(const FoldJob& job) {
  if (job.source_count == 1 && job.divisor == 1) {
    if (job.targets[0].data != job.sources[0].data)
      __builtin_memcpy(job.targets[0].data, job.sources[0].data, job.count * sizeof(T));
    return;
  }
  with_op(job.op, [&]<Op op>() {
    if constexpr (std::is_floating_point_v<T>)
      if (job.divisor != 1) return fold_all<T, op, true>(job);
    fold_all<T, op, false>(job);
  });
}

template <class Halves>
void reduce_mixed(const FoldJob& job) {
  const auto divisor = static_cast<float>(job.divisor);
  with_op(job.op, [&]<Op op>() {
    if (job.divisor != 1)
      return fold_blocks<float, op, true>(job, divisor, MixedBlocks<Halves>(job));
    fold_blocks<float, op, false>(job, divisor, MixedBlocks<Halves>(job));
  });
}

bool all_f32(const FoldJob& job) {
  bool all = job.targets[0].dtype == Dtype::f32;
  for (size_t s = 0; s < job.source_count; ++s) all &= job.sources[s].dtype == Dtype::f32;
  return all;
}

// Into the first target. `Halves` widens and narrows blocks of 16-bit floats: see half.h.
template <class Halves>
void fold_into_first(const FoldJob& job) {
  switch (job.targets[0].dtype) {
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
      return all_f32(job) ? reduce_native<float>(job) : reduce_mixed<Halves>(job);
  }
}

template <class Halves>
void run_kernel(const FoldJob& job) {
  fold_into_first<Halves>(job);
  const auto [first, dtype] = job.targets[0];
  for (size_t t = 1; t < job.target_count; ++t)
    __builtin_memcpy(job.targets[t].data, first, job.count * size_of(dtype));
}

}  // namespace
}  // namespace tutti

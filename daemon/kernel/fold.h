// The loop of every host kernel. Each kernel file includes this once and is compiled for its own
// processor; hence internal linkage, and no library function that the linker could merge with a
// copy compiled for another processor.
//
// A pack of values is loaded from every source, combined in registers, and stored to every target,
// before the next pack: memory is passed over once, and a target may be a source.
//
// `Processor` is a class with: kBytes, of a vector register; from_f16, from_bf16, to_f16 and
// to_bf16 between half a register of 16-bit floats and a register of f32; store_past_cache of an
// aligned register or half a one, and finish_stores, after which others see those.
#pragma once

#include <type_traits>

#include "daemon/kernel/arithmetic.h"
#include "daemon/kernel/formats.h"
#include "daemon/kernel/kernel.h"

namespace tutti {
namespace {

// Bytes that are copied by vectors, for the reason that copy_bytes() has.
constexpr size_t kCopyBytes = 256;

// Bytes of all sources together that are prefetched ahead.
constexpr size_t kAheadBytes = 8192;

template <Op op, class V>
[[gnu::always_inline]] inline void fold_in(Pack<V>& result, const Pack<V>& next) {
  result.a = combine<op>(result.a, next.a);
  result.b = combine<op>(result.b, next.b);
  result.c = combine<op>(result.c, next.c);
  result.d = combine<op>(result.d, next.d);
}

// Which NaN an operation gives is the processor's choice: folds give the one.
template <class T, class V>
[[gnu::always_inline]] inline V canonical(const V& values) {
  return values == values ? values : V{} + kNan<T>;
}

template <class From, class To, Op op, class T>
struct Fold {
  static constexpr size_t kPack = From::kValues;

  // Folds one pack of values. `Place` loads and stores it.
  template <class Place>
  [[gnu::always_inline]] static void pack(const FoldJob& job, const Place& place) {
    auto result = place.template read<From>(job.sources[0]);
    for (size_t s = 1; s < job.source_count; ++s)
      fold_in<op>(result, place.template read<From>(job.sources[s]));
    if constexpr (std::is_floating_point_v<T>)
      if (job.source_count > 1)
        result = {canonical<T>(result.a), canonical<T>(result.b), canonical<T>(result.c),
                  canonical<T>(result.d)};
    if constexpr (std::is_floating_point_v<T>)
      if (job.divisor != 1) {
        const auto divisor = static_cast<T>(job.divisor);
        result = {result.a / divisor, result.b / divisor, result.c / divisor, result.d / divisor};
      }
    const auto stored = To::encode(result);
    for (size_t t = 0; t < job.target_count; ++t) place.template write<To>(stored, job.targets[t]);
  }

  template <bool past_cache>
  static size_t whole_packs(const FoldJob& job, size_t first) {
    const size_t ahead = kAheadBytes / job.source_count;
    for (; first + kPack <= job.count; first += kPack)
      pack(job, WholePack<past_cache>{first, ahead});
    return first;
  }

  static void part(const FoldJob& job, size_t first, size_t count) {
    if (count != 0) pack(job, PartPack{first, count});
  }

  static void all(const FoldJob& job) {
    const size_t before = job.count < 2 * kPack ? 0 : values_before(job.targets[0], To::kRegister);
    part(job, 0, before);
    size_t done = 0;
    if (job.past_cache && all_alike(job, To::kRegister)) {
      done = whole_packs<true>(job, before);
      To::finish_stores();
    } else {
      done = whole_packs<false>(job, before);
    }
    part(job, done, job.count - done);
  }

  // Values before the target's first aligned register; 0 where no value begins there.
  static size_t values_before(const Target& target, size_t bytes) {
    const size_t before = (bytes - reinterpret_cast<uintptr_t>(target.data) % bytes) % bytes;
    const size_t size = To::size(target.dtype);
    return before % size == 0 ? before / size : 0;
  }

  // Whether every target is aligned to registers where the first is, and that one can be.
  static bool all_alike(const FoldJob& job, size_t bytes) {
    const auto place = [&](size_t t) {
      return reinterpret_cast<uintptr_t>(job.targets[t].data) % bytes;
    };
    bool alike = place(0) % To::size(job.targets[0].dtype) == 0;
    for (size_t t = 1; t < job.target_count; ++t) alike &= place(t) == place(0);
    return alike && job.count >= 2 * kPack;
  }
};

// Selects the fold by the run-time operation, of those that are not bitwise.
template <class T, class From, class To = From>
void fold_as(const FoldJob& job) {
  switch (job.op) {
    case Op::min:
      return Fold<From, To, Op::min, T>::all(job);
    case Op::max:
      return Fold<From, To, Op::max, T>::all(job);
    case Op::prod:
      return Fold<From, To, Op::prod, T>::all(job);
    case Op::sum:
    case Op::mean:
    case Op::premul_sum:
      return Fold<From, To, Op::sum, T>::all(job);
    case Op::band:
    case Op::bor:
    case Op::bxor:
      return;
  }
}

// Selects the bitwise fold of bytes. `size`: bytes of a value.
template <class Bytes>
void fold_bits(FoldJob job, size_t size) {
  job.count *= size;
  if (job.op == Op::band) return Fold<Bytes, Bytes, Op::band, uint8_t>::all(job);
  if (job.op == Op::bor) return Fold<Bytes, Bytes, Op::bor, uint8_t>::all(job);
  Fold<Bytes, Bytes, Op::bxor, uint8_t>::all(job);
}

// Integers wrap, so signs matter to min and max alone. For bits not even the width matters.
template <class Processor, class T>
void fold_integers(const FoldJob& job) {
  using Unsigned = std::make_unsigned_t<T>;
  if (is_bitwise(job.op)) return fold_bits<Plain<Processor, uint8_t>>(job, sizeof(T));
  if (job.op == Op::min || job.op == Op::max) return fold_as<T, Plain<Processor, T>>(job);
  fold_as<Unsigned, Plain<Processor, Unsigned>>(job);
}

// Bools: true where any is (sum, max and bor), where all are (prod, min and band), or where an odd
// number is (bxor). As numbers 0 and 1 they are combined by their bits.
template <class Processor>
void fold_truths(FoldJob job) {
  const bool all = job.op == Op::prod || job.op == Op::min || job.op == Op::band;
  if (job.op != Op::bxor) job.op = all ? Op::band : Op::bor;
  fold_bits<Truths<Processor>>(job, 1);
}

bool all_are(const FoldJob& job, Dtype dtype) {
  bool all = job.targets[0].dtype == dtype;
  for (size_t s = 0; s < job.source_count; ++s) all &= job.sources[s].dtype == dtype;
  return all;
}

// Bools are not copied: any byte but 0 becomes 1.
bool only_copies(const FoldJob& job) {
  const Dtype from = job.sources[0].dtype;
  return job.source_count == 1 && job.divisor == 1 && all_are(job, from) && from != Dtype::boolean;
}

void copy(const FoldJob& job) {
  const auto [from, dtype] = job.sources[0];
  auto* to = static_cast<std::byte*>(job.targets[0].data);
  const auto* at = static_cast<const std::byte*>(from);
  size_t bytes = to == from ? 0 : job.count * size_of(dtype);
  for (; bytes >= kCopyBytes; bytes -= kCopyBytes, to += kCopyBytes, at += kCopyBytes)
    __builtin_memcpy(to, at, kCopyBytes);
  if (bytes != 0) __builtin_memcpy(to, at, bytes);
}

template <class Processor>
void fold_floats(const FoldJob& job) {
  using F32 = Plain<Processor, float>;
  using F16 = Halves<Processor, Dtype::f16>;
  using Bf16 = Halves<Processor, Dtype::bf16>;
  using Any = Mixed<Processor>;
  const Dtype stored = job.targets[0].dtype;
  const bool alike = all_are(job, stored);
  if (stored == Dtype::f32) return alike ? fold_as<float, F32>(job) : fold_as<float, Any, F32>(job);
  if (only_copies(job)) return fold_as<uint16_t, Plain<Processor, uint16_t>>(job);
  if (stored == Dtype::f16) return alike ? fold_as<float, F16>(job) : fold_as<float, Any, F16>(job);
  return alike ? fold_as<float, Bf16>(job) : fold_as<float, Any, Bf16>(job);
}

template <class Processor>
void fold_on(const FoldJob& job) {
  if (only_copies(job) && job.target_count == 1 && !job.past_cache) return copy(job);
  switch (job.targets[0].dtype) {
    case Dtype::f64:
      return fold_as<double, Plain<Processor, double>>(job);
    case Dtype::i8:
      return fold_integers<Processor, int8_t>(job);
    case Dtype::u8:
      return fold_integers<Processor, uint8_t>(job);
    case Dtype::i16:
      return fold_integers<Processor, int16_t>(job);
    case Dtype::u16:
      return fold_integers<Processor, uint16_t>(job);
    case Dtype::i32:
      return fold_integers<Processor, int32_t>(job);
    case Dtype::u32:
      return fold_integers<Processor, uint32_t>(job);
    case Dtype::i64:
      return fold_integers<Processor, int64_t>(job);
    case Dtype::u64:
      return fold_integers<Processor, uint64_t>(job);
    case Dtype::boolean:
      return fold_truths<Processor>(job);
    case Dtype::f32:
    case Dtype::f16:
    case Dtype::bf16:
      return fold_floats<Processor>(job);
  }
}

}  // namespace
}  // namespace tutti

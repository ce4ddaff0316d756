// Formats of values in memory, and how a pack of them is loaded to registers and stored.
//
// Internal linkage on purpose, as in vectors.h.
#pragma once

#include "daemon/kernel/arithmetic.h"
#include "daemon/kernel/kernel.h"
#include "daemon/kernel/vectors.h"

namespace tutti {
namespace {

// Four registers keep a processor busy. Members, not an array, so that they stay in registers.
template <class V>
struct Pack {
  V a, b, c, d;
};
constexpr size_t kVectors = 4;

template <class T, size_t bytes>
[[gnu::always_inline]] inline Pack<Vector<T, bytes>> load_pack(const std::byte* from) {
  return {load<T, bytes>(from), load<T, bytes>(from + bytes), load<T, bytes>(from + 2 * bytes),
          load<T, bytes>(from + 3 * bytes)};
}

// Values that are computed in the type in which they are stored.
template <class Processor, class T>
struct Plain : Processor {
  static constexpr size_t kRegister = Processor::kBytes;
  static constexpr size_t kValues = kVectors * kRegister / sizeof(T);
  using Values = Pack<Vector<T, kRegister>>;
  using Stored = Values;

  static constexpr size_t size(Dtype) { return sizeof(T); }
  static Values decode(const std::byte* from, Dtype) { return load_pack<T, kRegister>(from); }
  static Stored encode(const Values& values) { return values; }
};

// Bools: any byte but 0 is true, and is loaded as 1.
template <class Processor>
struct Truths : Plain<Processor, uint8_t> {
  using typename Plain<Processor, uint8_t>::Values;

  static Values decode(const std::byte* from, Dtype dtype) {
    const Values bytes = Plain<Processor, uint8_t>::decode(from, dtype);
    const auto one = decltype(bytes.a){} + 1;
    return {combine<Op::min>(bytes.a, one), combine<Op::min>(bytes.b, one),
            combine<Op::min>(bytes.c, one), combine<Op::min>(bytes.d, one)};
  }
};

// 16-bit floats, computed as f32.
template <class Processor, Dtype dtype>
struct Halves : Processor {
  static constexpr size_t kRegister = Processor::kBytes / 2;
  static constexpr size_t kValues = kVectors * kRegister / sizeof(uint16_t);
  using Values = Pack<Vector<float, Processor::kBytes>>;
  using Stored = Pack<Vector<uint16_t, kRegister>>;

  static constexpr size_t size(Dtype) { return sizeof(uint16_t); }
  static Values decode(const std::byte* from, Dtype) {
    const Stored half = load_pack<uint16_t, kRegister>(from);
    if constexpr (dtype == Dtype::f16)
      return {Processor::from_f16(half.a), Processor::from_f16(half.b), Processor::from_f16(half.c),
              Processor::from_f16(half.d)};
    else
      return {Processor::from_bf16(half.a), Processor::from_bf16(half.b),
              Processor::from_bf16(half.c), Processor::from_bf16(half.d)};
  }
  static Stored encode(const Values& values) {
    if constexpr (dtype == Dtype::f16)
      return {Processor::to_f16(values.a), Processor::to_f16(values.b), Processor::to_f16(values.c),
              Processor::to_f16(values.d)};
    else
      return {Processor::to_bf16(values.a), Processor::to_bf16(values.b),
              Processor::to_bf16(values.c), Processor::to_bf16(values.d)};
  }
};

// Sources of which some are 16-bit floats and some f32. Loads only.
template <class Processor>
struct Mixed {
  using F32 = Plain<Processor, float>;
  using F16 = Halves<Processor, Dtype::f16>;
  using Bf16 = Halves<Processor, Dtype::bf16>;
  static constexpr size_t kValues = F32::kValues;
  using Values = typename F32::Values;
  using Stored = Values;  // At most.

  static size_t size(Dtype dtype) { return size_of(dtype); }
  static Values decode(const std::byte* from, Dtype dtype) {
    if (dtype == Dtype::f32) return F32::decode(from, dtype);
    return dtype == Dtype::f16 ? F16::decode(from, dtype) : Bf16::decode(from, dtype);
  }
};

// A whole pack of an operand, from value `first` on. Prefetches the bytes that lie `ahead` of it:
// processors do not prefetch several sources well by themselves.
template <bool past_cache>
struct WholePack {
  size_t first;
  size_t ahead;

  template <class Format>
  [[gnu::always_inline]] typename Format::Values read(const Operand& from) const {
    constexpr size_t kLine = 64;
    const size_t size = Format::size(from.dtype);
    const auto* data = static_cast<const std::byte*>(from.data) + first * size;
    for (size_t line = 0; line < Format::kValues * size; line += kLine)
      __builtin_prefetch(data + ahead + line);
    return Format::decode(data, from.dtype);
  }

  template <class Format>
  [[gnu::always_inline]] void write(const typename Format::Stored& values, const Target& to) const {
    auto* data = static_cast<std::byte*>(to.data) + first * Format::size(to.dtype);
    write_one<Format>(values.a, data);
    write_one<Format>(values.b, data + Format::kRegister);
    write_one<Format>(values.c, data + 2 * Format::kRegister);
    write_one<Format>(values.d, data + 3 * Format::kRegister);
  }

 private:
  template <class Format, class V>
  [[gnu::always_inline]] static void write_one(const V& values, std::byte* to) {
    if constexpr (past_cache)
      Format::store_past_cache(to, values);
    else
      store(to, values);
  }
};

// The `count` values before or after the whole packs, through a pack padded with zeros.
struct PartPack {
  size_t first;
  size_t count;

  template <class Format>
  typename Format::Values read(const Operand& from) const {
    alignas(64) std::byte whole[sizeof(typename Format::Stored)] = {};
    const size_t size = Format::size(from.dtype);
    __builtin_memcpy(whole, static_cast<const std::byte*>(from.data) + first * size, count * size);
    return Format::decode(whole, from.dtype);
  }

  template <class Format>
  void write(const typename Format::Stored& values, const Target& to) const {
    const size_t size = Format::size(to.dtype);
    __builtin_memcpy(static_cast<std::byte*>(to.data) + first * size, &values, count * size);
  }
};

}  // namespace
}  // namespace tutti

// C++ enumerations over tutti_types.h, with their names and properties. Every name is spelled the
// same way in C, C++, Python, logs and the command line.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "proto/tutti_types.h"

namespace tutti {

enum class Dtype : uint8_t {
  f32 = TUTTI_F32,
  f64 = TUTTI_F64,
  f16 = TUTTI_F16,
  bf16 = TUTTI_BF16,
  i8 = TUTTI_I8,
  u8 = TUTTI_U8,
  i32 = TUTTI_I32,
  i64 = TUTTI_I64,
  boolean = TUTTI_BOOL,
  i16 = TUTTI_I16,
  u16 = TUTTI_U16,
  u32 = TUTTI_U32,
  u64 = TUTTI_U64,
};
inline constexpr int kDtypes = 13;

enum class Op : uint8_t {
  sum = TUTTI_SUM,
  mean = TUTTI_MEAN,
  min = TUTTI_MIN,
  max = TUTTI_MAX,
  prod = TUTTI_PROD,
  band = TUTTI_BAND,
  bor = TUTTI_BOR,
  bxor = TUTTI_BXOR,
  premul_sum = TUTTI_PREMUL_SUM,
};
inline constexpr int kOps = 9;

enum class Collective : uint8_t {
  all_reduce = TUTTI_ALL_REDUCE,
  reduce = TUTTI_REDUCE,
  broadcast = TUTTI_BROADCAST,
  all_gather = TUTTI_ALL_GATHER,
  reduce_scatter = TUTTI_REDUCE_SCATTER,
  barrier = TUTTI_BARRIER,
  gather = TUTTI_GATHER,
  scatter = TUTTI_SCATTER,
  all_to_all = TUTTI_ALL_TO_ALL,
};
inline constexpr int kCollectives = 9;
inline constexpr std::array<Collective, kCollectives> kEveryCollective = {
    Collective::all_reduce, Collective::reduce,         Collective::broadcast,
    Collective::all_gather, Collective::reduce_scatter, Collective::barrier,
    Collective::gather,     Collective::scatter,        Collective::all_to_all};

// By tutti_code.
inline constexpr std::array<std::string_view, 17> kCodeNames = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
};
inline constexpr std::array<std::string_view, kDtypes> kDtypeNames = {
    "f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64", "bool", "i16", "u16", "u32", "u64"};
inline constexpr std::array<std::string_view, kOps> kOpNames = {
    "sum", "mean", "min", "max", "prod", "band", "bor", "bxor", "premul_sum"};
inline constexpr std::array<std::string_view, kCollectives> kCollectiveNames = {
    "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter",
    "barrier",    "gather", "scatter",   "all_to_all"};

constexpr std::string_view name_of(Dtype dtype) { return kDtypeNames[static_cast<size_t>(dtype)]; }
constexpr std::string_view name_of(Op op) { return kOpNames[static_cast<size_t>(op)]; }
constexpr std::string_view name_of(Collective c) {
  return kCollectiveNames[static_cast<size_t>(c)];
}

// The value whose name is `text`, or nullopt: find_name<Dtype>(kDtypeNames, "f32").
template <class Enum, size_t N>
constexpr std::optional<Enum> find_name(const std::array<std::string_view, N>& names,
                                        std::string_view text) {
  for (size_t i = 0; i < N; ++i)
    if (names[i] == text) return static_cast<Enum>(i);
  return std::nullopt;
}

// Bytes of one element.
constexpr size_t size_of(Dtype dtype) {
  constexpr std::array<size_t, kDtypes> sizes = {4, 8, 2, 2, 1, 1, 4, 8, 1, 2, 2, 4, 8};
  return sizes[static_cast<size_t>(dtype)];
}

// The dtype of partial results: 16-bit floats are accumulated, and sent as partial results, in f32.
constexpr Dtype accumulator_of(Dtype dtype) {
  return dtype == Dtype::f16 || dtype == Dtype::bf16 ? Dtype::f32 : dtype;
}

constexpr bool is_floating(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::f64 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

constexpr bool is_bitwise(Op op) { return op == Op::band || op == Op::bor || op == Op::bxor; }

// Whether elements of the dtype have this reduction: floats have no bitwise ones, and only floats
// have a mean and a sum after multiplication.
constexpr bool applies_to(Op op, Dtype dtype) {
  if (op == Op::mean || op == Op::premul_sum) return is_floating(dtype);
  return !is_bitwise(op) || !is_floating(dtype);
}

// Whether the collective combines the ranks' elements, so that its Op matters.
constexpr bool reduces(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce || c == Collective::reduce_scatter;
}
// Whether all ranks end with the same tensor.
constexpr bool is_common(Collective c) {
  return c == Collective::all_reduce || c == Collective::broadcast || c == Collective::all_gather;
}
constexpr bool has_root(Collective c) {
  return c == Collective::reduce || c == Collective::broadcast || c == Collective::gather ||
         c == Collective::scatter;
}
// Whether the input, and whether the output, consists of one block for each rank: at the root
// alone in a scatter, and in a gather.
constexpr bool has_input_blocks(Collective c) {
  return c == Collective::reduce_scatter || c == Collective::scatter || c == Collective::all_to_all;
}
constexpr bool has_output_blocks(Collective c) {
  return c == Collective::all_gather || c == Collective::gather || c == Collective::all_to_all;
}
constexpr bool has_blocks(Collective c) { return has_input_blocks(c) || has_output_blocks(c); }

}  // namespace tutti

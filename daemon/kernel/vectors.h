// Vectors of values as the compiler offers them: + - * / and comparisons work value by value, and
// `condition ? a : b` chooses value by value. One source serves every width of register.
//
// Internal linkage on purpose: each kernel file is compiled for its own processor, and the linker
// must never merge their copies.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {
namespace {

template <class T, size_t bytes>
struct VectorTypes {
  typedef T Type __attribute__((vector_size(bytes)));
  typedef T Anywhere __attribute__((vector_size(bytes), aligned(1), may_alias));  // In memory.
};
template <class T, size_t bytes>
using Vector = typename VectorTypes<T, bytes>::Type;

template <class T, size_t bytes>
Vector<T, bytes> load(const std::byte* from) {
  return *reinterpret_cast<const typename VectorTypes<T, bytes>::Anywhere*>(from);
}

template <class V>
void store(std::byte* to, const V& values) {
  __builtin_memcpy(to, &values, sizeof(values));
}

}  // namespace
}  // namespace tutti

// Values read and written at any alignment.
//
// Internal linkage on purpose, as in arithmetic.h.
#pragma once

#include <cstddef>

namespace tutti {
namespace {

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

}  // namespace
}  // namespace tutti

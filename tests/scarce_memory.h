// Memory that runs out when a test says so. Replaces operator new: in one file of a program.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>

namespace tutti::testing {

// Of this thread alone: the others' allocations go on.
inline thread_local int64_t allocations_left = -1;  // -1: all succeed.
inline thread_local bool throws_something_else = false;
inline thread_local bool has_failed = false;
inline thread_local bool none_left = false;  // All fail.

inline void* allocate(size_t bytes) {
  if (none_left || (allocations_left >= 0 && allocations_left-- == 0)) {
    has_failed = true;
    if (throws_something_else) throw std::runtime_error("a test's own");
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

class NoMemory {
 public:
  NoMemory() { none_left = true; }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
  ~NoMemory() { none_left = false; }
};

}  // namespace tutti::testing

void* operator new(size_t bytes) { return tutti::testing::allocate(bytes); }
void* operator new[](size_t bytes) { return tutti::testing::allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

// Allocation failures on demand: scarce_memory.cc replaces operator new.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::testing {

// For this thread alone.
inline thread_local int64_t allocations_left = -1;  // The next one fails; -1: none.
inline thread_local bool throws_something_else = false;
inline thread_local bool has_failed = false;
inline thread_local bool none_left = false;       // All allocations fail.
inline thread_local size_t bytes_max = SIZE_MAX;  // Larger ones fail.

// While it lives, all allocations fail.
class NoMemory {
 public:
  NoMemory() { none_left = true; }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
  ~NoMemory() { none_left = false; }
};

// While it lives, allocations of more than these bytes fail.
class SmallMemory {
 public:
  explicit SmallMemory(size_t bytes) { bytes_max = bytes; }
  SmallMemory(const SmallMemory&) = delete;
  SmallMemory& operator=(const SmallMemory&) = delete;
  ~SmallMemory() { bytes_max = SIZE_MAX; }
};

}  // namespace tutti::testing

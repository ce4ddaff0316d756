// Memory that runs out when a test says so: scarce_memory.cc replaces operator new.
#pragma once

#include <cstdint>

namespace tutti::testing {

// Of this thread alone: the others' allocations go on.
inline thread_local int64_t allocations_left = -1;  // -1: all succeed.
inline thread_local bool throws_something_else = false;
inline thread_local bool has_failed = false;
inline thread_local bool none_left = false;  // All fail.

// None succeeds meanwhile.
class NoMemory {
 public:
  NoMemory() { none_left = true; }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
  ~NoMemory() { none_left = false; }
};

}  // namespace tutti::testing

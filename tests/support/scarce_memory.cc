#include "tests/support/scarce_memory.h"

#include <cstdlib>
#include <new>
#include <stdexcept>

namespace tutti::testing {

static void* allocate(size_t bytes) {
  if (none_left || bytes > bytes_max || (allocations_left >= 0 && allocations_left-- == 0)) {
    has_failed = true;
    if (throws_something_else) throw std::runtime_error("a test's own");
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace tutti::testing

void* operator new(size_t bytes) { return tutti::testing::allocate(bytes); }
void* operator new[](size_t bytes) { return tutti::testing::allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

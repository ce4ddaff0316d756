// Makes this process run out of memory early.
#pragma once

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace tutti::testing {

// Whether an allocation that fails throws: sanitizers with an allocator of their own end the
// process instead, and need more address space than a limit leaves.
inline bool memory_can_run_out() {
  return dlsym(RTLD_DEFAULT, "__sanitizer_get_allocated_size") == nullptr &&
         dlsym(RTLD_DEFAULT, "__tsan_init") == nullptr;
}

// Leaves this process so much address space beyond what it has.
inline void limit_memory(size_t bytes) {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + bytes;
  const rlimit limit = {most, most};
  setrlimit(RLIMIT_AS, &limit);
}

}  // namespace tutti::testing

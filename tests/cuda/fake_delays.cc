#include "tests/cuda/fake_delays.h"

#include <fcntl.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "daemon/base/fd.h"

namespace tutti::fake {
namespace {

void wait_for_delay(const char* variable) {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, delay_of(variable), [] { return false; });
}

void note_kernel(char mark) {
  const char* path = std::getenv("FAKE_CUDA_KERNELS");
  if (path == nullptr) return;
  const Fd file(open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  (void)!write(file.get(), &mark, 1);
}

}  // namespace

std::chrono::milliseconds delay_of(const char* variable) {
  const char* given = std::getenv(variable);
  return std::chrono::milliseconds(given != nullptr ? std::atoi(given) : 0);
}

void wait_for_call() { wait_for_delay("FAKE_CUDA_SLOW_CALLS"); }

void wait_for_write() { wait_for_delay("FAKE_CUDA_SLOW_WRITES"); }

void wait_for_context() { wait_for_delay("FAKE_CUDA_SLOW_CONTEXTS"); }

void wait_for_import(size_t bytes) {
  if (bytes > size_t{32} << 20) wait_for_delay("FAKE_CUDA_SLOW_IMPORTS");
}

void begin_kernel() {
  note_kernel('+');
  wait_for_delay("FAKE_CUDA_SLOW_KERNELS");
}

void end_kernel() { note_kernel('-'); }

}  // namespace tutti::fake

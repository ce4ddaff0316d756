#include "tests/cuda/fake_poison.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>

namespace tutti::fake {
namespace {

bool names_this_process(const char* path) {
  std::ifstream file(path);
  for (pid_t pid = 0; file >> pid;)
    if (pid == getpid()) return true;
  return false;
}

}  // namespace

bool is_poisoned() {
  static const char* const path = std::getenv("FAKE_CUDA_POISON");
  static std::atomic<bool> once_poisoned = false;
  if (path == nullptr || once_poisoned) return once_poisoned;
  if (names_this_process(path)) once_poisoned = true;
  return once_poisoned;
}

void stop_if_poisoned() {
  while (is_poisoned()) pause();
}

}  // namespace tutti::fake

// Open descriptors, to find leaks.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

namespace tutti {

// Those of this process, or of another; 0: there is no such process.
inline int open_descriptors(pid_t pid = getpid()) {
  int count = 0;
  std::error_code gone;
  const auto folder =
      std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", gone);
  for ([[maybe_unused]] const auto& entry : folder) ++count;
  return count;
}

}  // namespace tutti

// Which CUDA driver a test uses: that of TUTTI_TEST_CUDA_DRIVER in the environment, so that the
// same tests run on a GPU (tests/gpu/run), else the fake one.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "daemon/cuda/cuda.h"

namespace tutti {

inline std::string driver_under_test(const std::string& otherwise = TUTTI_FAKE_CUDA) {
  const char* given = std::getenv("TUTTI_TEST_CUDA_DRIVER");
  return given != nullptr ? given : otherwise;
}

// Tests that need what only the fake driver does skip without it.
inline bool is_fake_under_test() {
  return std::filesystem::path(driver_under_test()).filename() ==
         std::filesystem::path(TUTTI_FAKE_CUDA).filename();
}

inline int gpus_of(const cuda::Driver& driver) {
  int count = 0;
  return driver.device_get_count(&count) == cuda::kSuccess ? count : 0;
}

// A program that lies beside this one, wherever both were moved to.
inline std::string beside_this_test(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

}  // namespace tutti

// Files of tests: a directory of their own, and what is in a file.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace tutti {

// Made with mode 0700, and removed with all that is in it.
class TemporaryDirectory : public std::filesystem::path {
 public:
  TemporaryDirectory() {
    std::string name = std::filesystem::temp_directory_path() / "tutti-test-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no directory " + name);
    assign(name);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(*this, ignored);
  }
};

// "" where there is no such file.
inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace tutti

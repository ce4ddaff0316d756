#include "tests/nccl/fake_faults.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace tutti::fake {

bool has_fault(std::string_view name, int rank) {
  const char* path = std::getenv("FAKE_NCCL_FAULTS");
  if (path == nullptr) return false;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string fault;
    int only = rank;
    words >> fault >> only;
    if (fault == name && (words.fail() || only == rank)) return true;
  }
  return false;
}

}  // namespace tutti::fake

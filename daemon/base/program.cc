#include "daemon/base/program.h"

#include <sys/auxv.h>

#include <bit>

namespace tutti {

std::filesystem::path program_path() {
  std::error_code error;
  const std::filesystem::path link = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return link;
  const auto* started = std::bit_cast<const char*>(getauxval(AT_EXECFN));
  return std::filesystem::absolute(started == nullptr ? "" : started, error);
}

}  // namespace tutti

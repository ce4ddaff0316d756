#include "daemon/base/program.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace tutti {

std::filesystem::path program_path() {
  std::error_code error;
  const std::filesystem::path link = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return link;
  const auto* started = std::bit_cast<const char*>(getauxval(AT_EXECFN));
  return std::filesystem::absolute(started == nullptr ? "" : started, error);
}

std::string hostname() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::optional<std::string> find_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::string variable(const std::string& name) { return find_variable(name).value_or(""); }

std::string text_of_file(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

}  // namespace tutti

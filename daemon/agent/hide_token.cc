#include "daemon/agent/hide_token.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace tutti {
namespace {

constexpr std::string_view kFlag = "--token";
constexpr std::string_view kVariable = "TUTTI_TOKEN";

// Overwrites what follows "name=". False: it does not begin so.
bool hide_value(char* text, std::string_view name) {
  if (!std::string_view(text).starts_with(std::string(name) + "=")) return false;
  char* value = text + name.size() + 1;
  std::memset(value, 'x', std::strlen(value));
  return true;
}

}  // namespace

void hide_token(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (!hide_value(argv[i], kFlag) && argv[i - 1] == kFlag)
      std::memset(argv[i], 'x', std::strlen(argv[i]));
  for (char** entry = environ; *entry != nullptr; ++entry) hide_value(*entry, kVariable);
  unsetenv(std::string(kVariable).c_str());
}

}  // namespace tutti

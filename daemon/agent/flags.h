// The agent's command line: one flag per setting. Flags override the environment, which overrides
// the settings file.
#pragma once

#include <optional>

#include "daemon/base/settings.h"

namespace tutti {

struct CommandLine {
  Settings settings;
  // Set if the program should exit with this, having printed help, its version or an error.
  std::optional<int> exit_code;
};

CommandLine read_command_line(int argc, char** argv);

}  // namespace tutti

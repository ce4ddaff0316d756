// The agent's command line: one flag a setting, in the order file, environment, flags.
#pragma once

#include <optional>

#include "daemon/base/settings.h"

namespace tutti {

struct CommandLine {
  Settings settings;
  // Set: the program has said what there is to say (help, version, an error) and ends with this.
  std::optional<int> exit_code;
};

CommandLine read_command_line(int argc, char** argv);

}  // namespace tutti

// The agent's command line: one flag per setting. Flags override the environment, which overrides
// the settings file.
#pragma once

#include <optional>

#include "daemon/base/credentials.h"
#include "daemon/base/settings.h"

namespace tutti {

struct CommandLine {
  Settings settings;
  Credentials credentials;  // Of its tokens; the agent adds its own key.
  // Set if the program should exit with this, having printed help, its version or an error.
  std::optional<int> exit_code;
};

CommandLine read_command_line(int argc, char** argv);

}  // namespace tutti

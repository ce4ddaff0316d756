// The agent's command line: one flag per setting. Flags override the environment, which overrides
// the settings file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/base/credentials.h"
#include "daemon/base/settings.h"

namespace tutti {

struct Flags {
  std::string config;  // Empty: the usual file, if it is there.
  bool verbose = false;
  bool check_config = false;
  std::map<std::string_view, std::string> values;  // By setting.
  std::string environment_token;  // It is removed from the environment once it was read.
};

struct Configuration {
  Settings settings;
  Credentials credentials;  // Of its tokens; the agent adds its own key.
};

// Reads file, environment and tokens. INVALID_ARGUMENT and others name file, line and setting.
// Reads on after a fault, and adds all to `faults` where there is one.
Result<Configuration> read_configuration(const Flags& flags, Faults* faults = nullptr);

struct CommandLine {
  Flags flags;
  Configuration configuration;
  // Set if the program should exit with this, having printed help, its version, an error, or what
  // --check-config found: 0, or 2 where there are faults.
  std::optional<int> exit_code;
  std::string error;  // What was printed, if it is one of settings.
};

CommandLine read_command_line(int argc, char** argv);

}  // namespace tutti

// `tutti doctor`: reads the settings as tuttid would, and checks this node.
#include "daemon/doctor/doctor.h"

#include <cstdio>
#include <filesystem>

#include "daemon/cli/cli.h"

namespace tutti {
namespace {

constexpr const char* kDefaultConfig = "/etc/tutti/tuttid.conf";

// Reads on after an error; returns the first.
Status read_settings(const DoctorFlags& flags, const std::string& config, Settings& settings) {
  Status first = read_settings_file(settings, config);
  if (flags.config.empty() && first.code() == Code::not_found) first = {};
  const auto keep = [&first](Status status) {
    if (first.ok()) first = std::move(status);
  };
  keep(read_settings_environment(settings));
  for (const auto& [name, text] : flags.values) keep(set_setting(settings, name, text));
  return first;
}

}  // namespace

int doctor_command(const DoctorFlags& flags) {
  DoctorOptions options{.config = flags.config.empty() ? kDefaultConfig : flags.config,
                        .address = flags.address,
                        .version = TUTTI_VERSION};
  options.settings_read = read_settings(flags, options.config, options.settings);
  options.config_exists = std::filesystem::exists(options.config);
  const std::vector<Check> checks = examine(look_at_node(options));
  std::fputs((flags.json ? doctor_json(checks) + "\n" : doctor_text(checks)).c_str(), stdout);
  return any_failed(checks) ? kExitFailure : 0;
}

}  // namespace tutti

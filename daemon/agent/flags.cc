#include "daemon/agent/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace tutti {
namespace {

constexpr const char* kConfigDefault = "/etc/tutti/tuttid.conf";
constexpr int kUsageError = 2;
constexpr std::array kLogLevels = {"trace", "debug", "info", "warn", "error", "off"};

struct Flags {
  std::string config;
  bool verbose = false;
  std::map<std::string_view, std::string> given;  // By setting.
};

void declare(CLI::App& app, Flags& flags) {
  app.set_version_flag("--version", "tuttid " TUTTI_VERSION);
  app.add_option("--config", flags.config, "settings file: name = value lines")
      ->type_name("FILE")
      ->default_str(kConfigDefault);
  app.add_flag("-v,--verbose", flags.verbose, "the same as --log-level=debug");
  const Settings defaults;
  for (const SettingRow& row : setting_rows()) {
    const auto store = [&flags, name = row.name](const std::string& text) {
      flags.given[name] = text;
    };
    app.add_option_function<std::string>(flag_of(row), store, std::string(row.help))
        ->type_name(row.text != nullptr ? "TEXT" : "NUMBER")
        ->take_last()
        ->default_str(setting_text(defaults, row));
  }
}

Status read_file(Settings& settings, const std::string& path) {
  if (!path.empty()) return read_settings_file(settings, path);
  const Status status = read_settings_file(settings, kConfigDefault);
  return status.code() == Code::not_found ? Status() : status;
}

Status read_all(Settings& settings, const Flags& flags) {
  Status status = read_file(settings, flags.config);
  if (status.ok())
    status = read_settings_environment(
        settings, [](const std::string& name) { return std::getenv(name.c_str()); });
  if (flags.verbose) settings.log_level = "debug";
  for (const auto& [name, text] : flags.given)
    if (status.ok()) status = set_setting(settings, name, text);
  if (status.ok() && std::ranges::find(kLogLevels, settings.log_level) == kLogLevels.end())
    status = invalid_argument("log level '" + settings.log_level +
                              "' is none of trace, debug, info, warn, error, off");
  return status;
}

}  // namespace

CommandLine read_command_line(int argc, char** argv) {
  CLI::App app(
      "The node's daemon of Tutti: lets trainers in, starts their jobs' workers, keeps in touch "
      "with the other nodes.\nSettings come from a file, then the environment (TUTTI_<NAME>), then "
      "flags; the last one wins.");
  Flags flags;
  declare(app, flags);
  CommandLine result;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    result.exit_code = app.exit(error) == 0 ? 0 : kUsageError;
    return result;
  }
  const Status status = read_all(result.settings, flags);
  if (status.ok()) return result;
  std::fprintf(stderr, "tuttid: %s\n", status.message().c_str());
  result.exit_code = kUsageError;
  return result;
}

}  // namespace tutti

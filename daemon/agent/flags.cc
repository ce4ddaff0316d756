#include "daemon/agent/flags.h"

#include <cstdio>

#include "daemon/base/options.h"
#include "daemon/base/program.h"
#include "daemon/base/token.h"
#include "proto/segment.h"

namespace tutti {
namespace {

constexpr const char* kDefaultConfig = "/etc/tutti/tuttid.conf";
constexpr int kUsageError = 2;

std::string type_of(const SettingRow& row) {
  if (!row.choices.empty()) return "{" + std::string(row.choices) + "}";
  return row.text != nullptr ? "TEXT" : "NUMBER";
}

void add_settings(Program& program, SettingGroup group, Flags& flags) {
  const Settings defaults;
  for (const SettingRow& row : setting_rows()) {
    if (row.group != group) continue;
    const auto store = [&flags, name = row.name](const std::string& text) {
      flags.values[name] = text;
    };
    program.add_call(flag_of(row), store, std::string(row.help))
        .of_type(type_of(row))
        .last_counts()
        .in_group(std::string(kSettingGroups.at(static_cast<size_t>(group))))
        .shows_default(setting_text(defaults, row));
  }
}

void add_flags(Program& program, Flags& flags) {
  program.add("--config", flags.config, "settings file: name = value lines")
      .of_type("FILE")
      .shows_default(kDefaultConfig);
  program.add_flag("-v,--verbose", flags.verbose, "the same as --log-level=debug");
  program.show_on_request({kSettingGroups.begin() + 1, kSettingGroups.end()});
  for (size_t group = 0; group < kSettingGroups.size(); ++group)
    add_settings(program, static_cast<SettingGroup>(group), flags);
}

Status read_all(Settings& settings, const Flags& flags) {
  Status status =
      read_settings_file(settings, flags.config.empty() ? kDefaultConfig : flags.config);
  if (flags.config.empty() && status.code() == Code::not_found) status = {};
  if (status.ok()) status = read_settings_environment(settings);
  if (!flags.environment_token.empty()) settings.token = flags.environment_token;
  if (flags.verbose) settings.log_level = "debug";
  for (const auto& [name, text] : flags.values)
    if (status.ok()) status = set_setting(settings, name, text);
  return status;
}

Status read_credentials(const Settings& settings, Credentials& credentials) {
  credentials.trust_network = settings.trust_network == "yes";
  credentials.certified_hosts = settings.tls == "require";
  if (!settings.token.empty()) {
    credentials.tokens = {plain_token(settings.token)};
    return {};
  }
  if (settings.token_file.empty()) return {};
  const Result<std::string> lines = read_secret_file(settings.token_file);
  if (!lines.ok()) return lines.status();
  Result<std::vector<Token>> tokens = parse_tokens(*lines, settings.token_file);
  if (!tokens.ok()) return tokens.status();
  credentials.tokens = *std::move(tokens);
  return {};
}

// One like --token= becomes two, for CLI11 would take the next argument for its value.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool is_empty = word.starts_with("--") && word.find('=') == word.size() - 1;
    words.push_back(is_empty ? word.substr(0, word.size() - 1) : word);
    if (is_empty) words.emplace_back();
  }
  return words;
}

}  // namespace

Result<Configuration> read_configuration(const Flags& flags) {
  Configuration result;
  Status status = read_all(result.settings, flags);
  if (status.ok()) status = read_credentials(result.settings, result.credentials);
  if (!status.ok()) return status;
  return result;
}

CommandLine read_command_line(int argc, char** argv) {
  Program program(
      "tuttid",
      "The node's daemon of Tutti: admits trainers, starts their jobs' workers, keeps in touch "
      "with the other nodes.\nSettings come from a file, then the environment (TUTTI_<NAME>), then "
      "flags; the last one wins.",
      "tuttid " TUTTI_VERSION " (protocol " + std::to_string(kProtocolVersion) + ")");
  CommandLine result;
  add_flags(program, result.flags);
  const Program::Read read = program.read(arguments_of(argc, argv));
  result.exit_code = read.exit_code;
  if (!read.error.empty()) {
    std::fprintf(stderr, "%s\nRun with --help for more information.\n", read.error.c_str());
    result.exit_code = kUsageError;
  }
  if (result.exit_code) return result;
  result.flags.environment_token = variable("TUTTI_TOKEN");
  Result<Configuration> configuration = read_configuration(result.flags);
  if (configuration.ok()) {
    result.configuration = *std::move(configuration);
    return result;
  }
  result.error = configuration.status().message();
  std::fprintf(stderr, "tuttid: %s\n", result.error.c_str());
  result.exit_code = kUsageError;
  return result;
}

}  // namespace tutti

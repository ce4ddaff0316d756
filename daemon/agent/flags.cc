#include "daemon/agent/flags.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

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

void add_flags(CLI::App& app, Flags& flags) {
  app.set_version_flag(
      "--version", "tuttid " TUTTI_VERSION " (protocol " + std::to_string(kProtocolVersion) + ")");
  app.add_option("--config", flags.config, "settings file: name = value lines")
      ->type_name("FILE")
      ->default_str(kDefaultConfig);
  app.add_flag("-v,--verbose", flags.verbose, "the same as --log-level=debug");
  const Settings defaults;
  for (const SettingRow& row : setting_rows()) {
    const auto store = [&flags, name = row.name](const std::string& text) {
      flags.values[name] = text;
    };
    app.add_option_function<std::string>(flag_of(row), store, std::string(row.help))
        ->type_name(type_of(row))
        ->take_last()
        ->default_str(setting_text(defaults, row));
  }
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

// The arguments from the last to the first, as CLI11 wants them. One like --token= is two, for
// CLI11 would take the next argument for its value.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = argc - 1; i > 0; --i) {
    std::string word = argv[i];
    if (word.starts_with("--") && word.ends_with('=') && word.find('=') == word.size() - 1) {
      words.emplace_back();
      word.pop_back();
    }
    words.push_back(std::move(word));
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
  CLI::App app(
      "The node's daemon of Tutti: admits trainers, starts their jobs' workers, keeps in touch "
      "with the other nodes.\nSettings come from a file, then the environment (TUTTI_<NAME>), then "
      "flags; the last one wins.",
      "tuttid");
  CommandLine result;
  add_flags(app, result.flags);
  try {
    app.parse(arguments_of(argc, argv));
  } catch (const CLI::ParseError& error) {
    result.exit_code = app.exit(error) == 0 ? 0 : kUsageError;
    return result;
  }
  const char* token = std::getenv("TUTTI_TOKEN");
  if (token != nullptr) result.flags.environment_token = token;
  Result<Configuration> read = read_configuration(result.flags);
  if (read.ok()) {
    result.configuration = *std::move(read);
    return result;
  }
  result.error = read.status().message();
  std::fprintf(stderr, "tuttid: %s\n", result.error.c_str());
  result.exit_code = kUsageError;
  return result;
}

}  // namespace tutti

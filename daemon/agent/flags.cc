#include "daemon/agent/flags.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "daemon/agent/start_checks.h"
#include "daemon/base/log_line.h"
#include "daemon/base/options.h"
#include "daemon/base/program.h"
#include "daemon/base/text.h"
#include "daemon/base/token.h"
#include "proto/segment.h"

namespace tutti {
namespace {

constexpr const char* kDefaultConfig = "/etc/tutti/tuttid.conf";
constexpr int kUsageError = 2;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

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
  program.add_flag("--check-config", flags.check_config,
                   "read all settings, print each fault, and start nothing; 0: none, 2: faults");
  program.add_flag("-v,--verbose", flags.verbose, "the same as --log-level=debug");
  program.show_on_request({kSettingGroups.begin() + 1, kSettingGroups.end()});
  for (size_t group = 0; group < kSettingGroups.size(); ++group)
    add_settings(program, static_cast<SettingGroup>(group), flags);
}

std::string file_of(const Flags& flags) {
  return flags.config.empty() ? kDefaultConfig : flags.config;
}

bool has_file(const Flags& flags) {
  return !flags.config.empty() || access(kDefaultConfig, F_OK) == 0 || errno != ENOENT;
}

void read_all(Settings& settings, const Flags& flags, Faults& faults) {
  if (has_file(flags)) (void)read_settings_file(settings, file_of(flags), &faults);
  (void)read_settings_environment(settings, &faults);
  if (!flags.environment_token.empty()) settings.token = flags.environment_token;
  if (flags.verbose) settings.log_level = "debug";
  for (const auto& [name, text] : flags.values)
    if (Status set = set_setting(settings, name, text); !set.ok()) faults.push_back(std::move(set));
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

// There is no log yet.
void print_error(const std::string& message) {
  const LogLine line{.time = {}, .level = LogLevel::error, .job = {}, .message = message};
  const LogForm form = form_of_stderr("text");
  const std::string text =
      form == LogForm::journal ? format_line(line, form) : "tuttid: " + message + "\n";
  std::fputs(text.c_str(), stderr);
}

// The line that sets it; 0: none.
int line_of(const std::string& file, std::string_view name) {
  std::ifstream lines(file);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (const size_t begin = line.find_first_not_of(" \t");
        begin != std::string::npos && line.find_first_of(" \t=", begin) == begin + name.size() &&
        line.compare(begin, name.size(), name) == 0)
      return number;
  }
  return 0;
}

// Where it is set, "/etc/tutti/tuttid.conf:3: "; empty: nowhere.
std::string place_of(const SettingRow& row, const Flags& flags) {
  if (flags.values.contains(row.name)) return "flag " + flag_of(row) + ": ";
  if (const std::string name = environment_name_of(row); std::getenv(name.c_str()) != nullptr)
    return "environment " + name + ": ";
  const int line = line_of(file_of(flags), row.name);
  return line == 0 ? "" : file_of(flags) + ":" + std::to_string(line) + ": ";
}

// With the place of the first setting that it names: "setting host", "host = b". Names of settings
// are ordinary words elsewhere.
Status with_place(const Status& fault, const Flags& flags) {
  const std::vector<std::string> words = split(fault.message(), ' ');
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find_last_not_of(",;:") + 1);
    const bool is_named =
        (i > 0 && words[i - 1] == "setting") || (i + 1 < words.size() && words[i + 1] == "=");
    const auto row = std::ranges::find(setting_rows(), name, &SettingRow::name);
    if (is_named && row != setting_rows().end())
      return {fault.code(), place_of(*row, flags) + fault.message()};
  }
  return fault;
}

// What reads well, and yet forbids a start: this one, or one as the machine is now.
void check(const Configuration& read, const Flags& flags, Faults& faults) {
  Faults found = flags.check_config ? check_start(read.settings, read.credentials)
                                    : check_texts(read.settings, read.credentials);
  if (flags.check_config)
    if (Status usable = check_certificates_of(read.settings); !usable.ok())
      found.push_back(std::move(usable));
  const std::string what = flags.check_config ? "" : "cannot start: ";
  for (const Status& fault : found)
    faults.push_back({fault.code(), what + with_place(fault, flags).message()});
}

int report_check(const Flags& flags, const Faults& faults) {
  for (const Status& fault : faults) std::fprintf(stderr, "%s\n", fault.message().c_str());
  if (!faults.empty()) return kUsageError;
  const std::string file = file_of(flags);
  std::printf(has_file(flags) ? "OK: %s\n" : "OK: there is no %s; the defaults\n", file.c_str());
  return 0;
}

}  // namespace

Result<Configuration> read_configuration(const Flags& flags, Faults* faults) {
  Faults own;
  Faults& all = faults == nullptr ? own : *faults;
  Configuration result;
  read_all(result.settings, flags, all);
  if (Status read = read_credentials(result.settings, result.credentials); !read.ok())
    all.push_back(std::move(read));
  if (!all.empty()) return all.front();
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
  const Program::Read read = program.read({argv + 1, argv + argc});
  result.exit_code = read.exit_code;
  if (!read.error.empty()) {
    print_error(read.error + " (see tuttid --help-all)");
    result.exit_code = kUsageError;
  }
  if (result.exit_code) return result;
  result.flags.environment_token = variable("TUTTI_TOKEN");
  Faults faults;
  Result<Configuration> configuration = read_configuration(result.flags, &faults);
  if (configuration.ok()) check(*configuration, result.flags, faults);
  if (result.flags.check_config) {
    result.exit_code = report_check(result.flags, faults);
  } else if (faults.empty()) {
    result.configuration = *std::move(configuration);
  } else {
    result.error = faults.front().message();
    for (const Status& fault : faults) print_error(fault.message());
    result.exit_code = kUsageError;
  }
  return result;
}

}  // namespace tutti

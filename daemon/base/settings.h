// The one table of settings: every limit and choice has a name, a default, a range and a sentence
// of help here. Read from a file, then the environment (TUTTI_<NAME>), then flags (--<name> with
// dashes); the last one wins.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

#include "daemon/base/status.h"

namespace tutti {

struct Settings {
  // The agent.
  std::string socket = "/run/tutti/tuttid.sock";
  std::string run_dir = "/run/tutti";
  std::string listen = "127.0.0.1:7601";
  std::string coordinator;
  std::string host;
  std::string data_address;
  std::string worker_binary;
  std::string token;
  std::string log_level = "info";
  // Joining.
  int64_t join_timeout_ms = 30'000;
  int64_t worker_idle_ms = 3'000;
  int64_t hello_timeout_ms = 5'000;
  // Operations.
  int64_t op_timeout_ms = 30'000;
  int64_t segment_bytes = int64_t{64} << 30;
  int64_t slice_bytes = int64_t{1} << 20;
  int64_t auto_explore = 0;
  int64_t slices_in_flight = 4;
  int64_t ops_in_flight = 4;
  int64_t stay_awake_us = 200;
  std::string worker_cores = "trainers";
  int64_t early_bytes = 8 << 20;
  // Links.
  std::string transport = "auto";
  std::string tcp_congestion = "cubic";
  int64_t frame_bytes_max = int64_t{16} << 20;
  int64_t link_queue_bytes = int64_t{64} << 20;
  int64_t connect_timeout_ms = 10'000;
  int64_t silence_ms = 5'000;
  int64_t half_open_links = 256;
};

// One setting: its name, help, member of Settings and allowed values. Exactly one of `text` and
// `number` is set.
struct SettingRow {
  std::string_view name;  // snake_case: flag --join-timeout-ms, environment TUTTI_JOIN_TIMEOUT_MS.
  std::string_view help;
  std::string Settings::*text = nullptr;
  int64_t Settings::*number = nullptr;
  int64_t least = 0;
  int64_t most = 0;
  std::string_view choices = {};  // Of a text; separated by blanks. Empty: any.
};

std::span<const SettingRow> setting_rows();

// INVALID_ARGUMENT naming the setting, the text and what is allowed. NOT_FOUND: no such setting.
Status set_setting(Settings& settings, std::string_view name, std::string_view text);
std::string setting_text(const Settings& settings, const SettingRow& row);

// "name = value" lines, # comments. NOT_FOUND where there is no such file; errors name file and
// line.
Status read_settings_file(Settings& settings, const std::string& path);
// As read_settings_file(); `name` is used in errors.
Status read_settings_lines(Settings& settings, std::istream& lines, const std::string& name);
// TUTTI_<NAME> for each row; `lookup` is getenv in production.
Status read_settings_environment(Settings& settings,
                                 const std::function<const char*(const std::string&)>& lookup);

// Every setting as "--name=value", to hand to a child process.
std::string flag_of(const SettingRow& row);
std::string environment_name_of(const SettingRow& row);

}  // namespace tutti

// The one table of settings: every limit and choice has its name, default, range and sentence of
// help here. They are read from a file, then the environment (TUTTI_<NAME>), then flags (--<name>
// with dashes); the last one wins.
//
// CLI11 reads files and the environment, too, but there a file overrides the environment, an
// invalid variable is not named, and errors in a file have no line.
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
  std::string worker_environment = "PATH LANG LC_* TZ LD_LIBRARY_PATH CUDA_* NVIDIA_* NCCL_*";
  std::string token;
  std::string token_file;
  std::string admin_group;
  std::string trust_network = "no";
  std::string tls = "off";
  std::string tls_dir = "/etc/tutti/tls";
  std::string tls_admin = "tutti-admin";
  std::string log_level = "info";
  std::string log_format = "text";
  int64_t log_lines = 8'192;
  std::string nvml_library = "libnvidia-ml.so.1";
  int64_t drain_ms = 0;
  // What is seen.
  std::string metrics_listen;
  std::string metrics_public = "no";
  std::string metrics_per_rank = "yes";
  int64_t trace_jobs = 64;
  int64_t trace_keep_ms = 600'000;
  // Membership.
  int64_t coordinator_grace_ms = 5'000;
  std::string etcd;
  std::string etcd_prefix = "/tutti";
  int64_t etcd_ttl_ms = 10'000;
  std::string etcd_user;
  std::string etcd_password_file;
  std::string etcd_tls_dir;
  // Joining.
  int64_t join_timeout_ms = 30'000;
  int64_t worker_idle_ms = 3'000;
  int64_t hello_timeout_ms = 5'000;
  int64_t half_open_hellos = 1'024;
  int64_t jobs_max = 256;
  int64_t user_jobs_max = 64;
  int64_t user_ranks_max = 1'024;
  int64_t user_memory_bytes = int64_t{1} << 40;
  // Operations.
  int64_t op_timeout_ms = 30'000;
  int64_t segment_bytes = int64_t{64} << 30;
  int64_t slice_bytes = int64_t{1} << 20;
  int64_t slices_in_flight = 16;
  int64_t ops_in_flight = 4;
  int64_t stay_awake_us = 200;
  std::string worker_cores = "trainers";
  std::string folding = "auto";
  int64_t early_bytes = 8 << 20;
  // GPUs.
  std::string cuda_driver = "libcuda.so.1";
  int64_t gpu_staging_bytes = int64_t{8} << 30;
  int64_t gpu_ranks = 64;
  std::string gpu_link = "host";
  std::string nccl_library = "libnccl.so.2";
  int64_t nccl_timeout_ms = 30'000;
  // Links.
  std::string transport = "auto";
  std::string data_ports;
  std::string data_streams = "auto";
  std::string tcp_congestion = "cubic";
  int64_t frame_bytes_max = int64_t{16} << 20;
  int64_t link_queue_bytes = int64_t{64} << 20;
  int64_t connect_timeout_ms = 10'000;
  int64_t silence_ms = 5'000;
  int64_t half_open_links = 256;
  int64_t parked_links = 256;
};

// What a setting is about. Few need more than the first group; who needs the last knows why.
enum class SettingGroup : uint8_t { basic, security, limits, gpus, expert };
inline constexpr std::array<std::string_view, 5> kSettingGroups = {"Basic", "Security", "Limits",
                                                                   "GPUs", "Expert"};

// A row of the table. Numbers have a range, some texts a list of choices.
struct SettingRow {
  SettingGroup group = SettingGroup::expert;
  std::string_view name;  // snake_case: flag --join-timeout-ms, environment TUTTI_JOIN_TIMEOUT_MS.
  std::string_view help;
  std::string Settings::*text = nullptr;
  int64_t Settings::*number = nullptr;
  int64_t min = 0;
  int64_t max = 0;
  std::string_view choices = {};  // Separated by spaces; empty: any text.
};

std::span<const SettingRow> setting_rows();

// Sets `name` to `text`. A number may have a unit: "30s", "500ms", "2m", "1h" where the name ends
// with _ms or _us, "64M", "1GiB" where it ends with _bytes. INVALID_ARGUMENT names the setting, the
// text and the allowed values; NOT_FOUND: there is no such setting, and which is spelt most like
// it.
Status set_setting(Settings& settings, std::string_view name, std::string_view text);
// The value as text, as set_setting() takes it.
std::string setting_text(const Settings& settings, const SettingRow& row);

// Each of the following reads on after a fault, returns the first one, and adds all to `faults`
// where there is one.
using Faults = std::vector<Status>;
// Reads "name = value" lines; # begins a comment, quotes keep spaces; each setting at most once.
// INVALID_ARGUMENT names file and line; NOT_FOUND: there is no such file.
Status read_settings_file(Settings& settings, const std::string& path, Faults* faults = nullptr);
// Reads lines as from a file called `name`.
Status read_settings_lines(Settings& settings, std::istream& lines, const std::string& name,
                           Faults* faults = nullptr);
// Reads TUTTI_<NAME> of this process's environment for each row. Errors name the variable.
Status read_settings_environment(Settings& settings, Faults* faults = nullptr);

std::string flag_of(const SettingRow& row);              // "--join-timeout-ms"
std::string environment_name_of(const SettingRow& row);  // "TUTTI_JOIN_TIMEOUT_MS"

}  // namespace tutti

#include "daemon/base/reload.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace tutti {
namespace {

using namespace std::literals;

constexpr std::array kAtOnce = {
    "log_level"sv,     "drain_ms"sv,       "half_open_hellos"sv,  "jobs_max"sv,
    "user_jobs_max"sv, "user_ranks_max"sv, "user_memory_bytes"sv,
};

// What workers are given when they start.
constexpr std::array kNewJobs = {
    "worker_environment"sv, "join_timeout_ms"sv,   "worker_idle_ms"sv,   "op_timeout_ms"sv,
    "segment_bytes"sv,      "slice_bytes"sv,       "slices_in_flight"sv, "stay_awake_us"sv,
    "worker_cores"sv,       "folding"sv,           "ops_in_flight"sv,    "early_bytes"sv,
    "cuda_driver"sv,        "gpu_staging_bytes"sv, "gpu_ranks"sv,        "gpu_link"sv,
    "nccl_library"sv,       "nccl_timeout_ms"sv,   "transport"sv,        "data_ports"sv,
    "data_streams"sv,       "tcp_congestion"sv,    "frame_bytes_max"sv,  "link_queue_bytes"sv,
    "connect_timeout_ms"sv, "silence_ms"sv,        "half_open_links"sv,  "parked_links"sv,
};

std::string in_words(const std::string& value) {
  return value.empty() ? "empty" : "\"" + value + "\"";
}

}  // namespace

Reload reload_of(const SettingRow& row) {
  if (std::ranges::find(kAtOnce, row.name) != kAtOnce.end()) return Reload::at_once;
  const bool of_workers = std::ranges::find(kNewJobs, row.name) != kNewJobs.end();
  return of_workers ? Reload::new_jobs : Reload::restart;
}

void copy_reloadable(Settings& to, const Settings& from) {
  for (const SettingRow& row : setting_rows()) {
    if (reload_of(row) == Reload::restart) continue;
    if (row.text != nullptr) to.*row.text = from.*row.text;
    if (row.number != nullptr) to.*row.number = from.*row.number;
  }
}

ReloadReport compare_settings(const Settings& running, const Settings& read) {
  ReloadReport report;
  for (const SettingRow& row : setting_rows()) {
    const std::string before = setting_text(running, row);
    const std::string after = setting_text(read, row);
    if (before == after) continue;
    const std::string name(row.name);
    if (row.name == "token")
      report.kept.push_back(name + ": the one of before until a restart");
    else if (reload_of(row) == Reload::restart)
      report.kept.push_back(name + ": " + in_words(before) + " until a restart, then " +
                            in_words(after));
    else
      report.changed.push_back(
          name + ": " + in_words(after) +
          (reload_of(row) == Reload::new_jobs ? " for jobs that start now" : " from now on") +
          ", until now " + in_words(before));
  }
  return report;
}

}  // namespace tutti

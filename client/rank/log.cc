#include "client/rank/log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace tutti::client {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"debug", "info", "warn", "error", "off"};

int64_t unix_ms() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void write_line(LogLevel level, std::string_view text) {
  const std::string line = log_line(level, text, unix_ms(), getpid());
  (void)!write(STDERR_FILENO, line.data(), line.size());
}

LogLevel level_of_environment() {
  const char* text = std::getenv("TUTTI_LOG");
  if (text == nullptr || *text == '\0') return LogLevel::off;
  const ParsedLevel parsed = parse_log_level(text);
  if (!parsed.valid)
    write_line(LogLevel::warn, "TUTTI_LOG='" + std::string(text) +
                                   "' is no level: use debug, info, warn, error or off");
  return parsed.level;
}

}  // namespace

ParsedLevel parse_log_level(std::string_view text) {
  const auto* found = std::ranges::find(kNames, text);
  if (found == kNames.end()) return {LogLevel::warn, false};
  return {static_cast<LogLevel>(found - kNames.begin()), true};
}

std::string log_line(LogLevel level, std::string_view text, int64_t unix_ms, int pid) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 64> head{};
  std::snprintf(head.data(), head.size(), "tutti[%d] %02d:%02d:%02d.%03d ", pid, utc.tm_hour,
                utc.tm_min, utc.tm_sec, static_cast<int>(unix_ms % 1000));
  std::string line = head.data();
  line += kNames.at(static_cast<size_t>(level));
  line += ": ";
  const size_t start = line.size();
  line += text;
  std::replace_if(
      line.begin() + static_cast<std::ptrdiff_t>(start), line.end(),
      [](unsigned char byte) { return std::iscntrl(byte) != 0; }, '?');
  return line + "\n";
}

bool logs(LogLevel level) noexcept {
  static const LogLevel least = [] {
    try {
      return level_of_environment();
    } catch (...) {  // Out of memory: better silent than ended.
      return LogLevel::off;
    }
  }();
  return level != LogLevel::off && level >= least;
}

void log(LogLevel level, const std::string& text) noexcept {
  if (!logs(level)) return;
  try {
    write_line(level, text);
  } catch (...) {  // As above.
  }
}

}  // namespace tutti::client

// What the library says on standard error, on demand: TUTTI_LOG is debug, info, warn or error.
// Without it the library is silent. Operations are not logged, but for their failures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::client {

// `off` is above all others.
enum class LogLevel : uint8_t { debug, info, warn, error, off };

// `valid` is false where `text` is no level; then the level is `warn`.
struct ParsedLevel {
  LogLevel level = LogLevel::off;
  bool valid = true;
};
ParsedLevel parse_log_level(std::string_view text);

// "tutti[4711] 18:05:42.123 debug: TEXT" and a new line, of UTC; control characters become '?'.
std::string log_line(LogLevel level, std::string_view text, int64_t unix_ms, int pid);

// Whether this process logs such lines: TUTTI_LOG, as it was when the library first asked.
bool logs(LogLevel level) noexcept;
// Writes one line with one write(2), if logs(level). Never fails: what cannot be written is lost.
// Any thread.
void log(LogLevel level, const std::string& text) noexcept;

}  // namespace tutti::client

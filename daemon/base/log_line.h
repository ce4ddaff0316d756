// The forms of a line of a daemon's log. Pure, but for is_journal().
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti {

// `journal`: the priority that sd-daemon(3) defines, "<6>", and the message, for systemd's journal,
// which adds time and process itself.
enum class LogForm : uint8_t { text, terminal, journal, json, json_in_journal };

enum class LogLevel : uint8_t { trace, debug, info, warning, error, critical };

struct LogLine {
  std::chrono::system_clock::time_point time;
  LogLevel level = LogLevel::info;
  std::string_view program;
  int pid = 0;
  std::string_view job;  // Whose the line is; empty: it is not of one job alone.
  std::string_view message;
};

// One line with its newline; what is not printable in the message or the job becomes '?'.
//   text: 2026-11-23T18:05:42.123+01:00 info tuttid[4711] job "demo": ready
//   json: {"time":"2026-11-23T18:05:42.123+01:00","level":"info","program":"tuttid","pid":4711,
//          "job":"demo","message":"ready"}
std::string format_line(const LogLine& line, LogForm form);

// Whether the journal reads what is written to `fd`, as `journal_stream` says: the environment's
// JOURNAL_STREAM, device and inode in decimal, "8:1234".
bool is_journal(int fd, std::string_view journal_stream);

// The form for standard error, by the setting log_format, the terminal and JOURNAL_STREAM.
LogForm form_of_stderr(std::string_view log_format);

}  // namespace tutti

// The log of a daemon: spdlog's lines to stderr, without ever waiting for their readers. In
// a header alone, so that only the daemons link spdlog.
#pragma once

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>

#include "daemon/base/line_queue.h"
#include "daemon/base/settings.h"

namespace tutti {

inline std::string_view terminal_color_of(spdlog::level::level_enum level) {
  if (level >= spdlog::level::err) return "\033[31m\033[1m";
  if (level == spdlog::level::warn) return "\033[33m\033[1m";
  return level == spdlog::level::info ? "\033[32m" : "\033[36m";
}

// A line as text: "2026-11-23T18:05:42.123 info tuttid[4711] ready", with colours on a terminal.
inline std::string format_line(spdlog::formatter& formatter, const spdlog::details::log_msg& msg) {
  static const bool kIsTerminal = isatty(STDERR_FILENO) == 1;
  spdlog::memory_buf_t text;
  formatter.format(msg, text);
  std::string line(text.data(), text.size());
  if (!kIsTerminal || msg.color_range_end <= msg.color_range_start) return line;
  line.insert(msg.color_range_end, "\033[m");
  return line.insert(msg.color_range_start, terminal_color_of(msg.level));
}

class LogSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  LogSink(const spdlog::formatter& formatter, size_t lines_max)
      : base_sink(formatter.clone()),
        queue_(STDERR_FILENO, lines_max,
               [of = std::shared_ptr(formatter.clone()), lines_max](uint64_t count) {
                 return format_line(*of, {"", spdlog::level::warn,
                                          fmt::format("{} lines are missing here: log_lines = {} "
                                                      "waited to be written",
                                                      count, lines_max)});
               }) {}
  void close() { queue_.close(kGrace); }

 private:
  static constexpr Millis kGrace{200};

  void sink_it_(const spdlog::details::log_msg& msg) override {
    queue_.add(format_line(*formatter_, msg));
  }
  void flush_() override {}

  LineQueue queue_;
};

// While it lives, what is logged goes to stderr. Its end waits a moment for the last lines.
class Log {
 public:
  Log(const std::string& program, const Settings& settings)
      : sink_(std::make_shared<LogSink>(
            spdlog::pattern_formatter("%Y-%m-%dT%H:%M:%S.%e %^%l%$ " + program + "[%P] %v"),
            static_cast<size_t>(settings.log_lines))) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(program, sink_));
    spdlog::set_level(spdlog::level::from_str(settings.log_level));
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log() { close(); }

  // For a process that ends without destructors.
  void close() const { sink_->close(); }

 private:
  const std::shared_ptr<LogSink> sink_;
};

}  // namespace tutti

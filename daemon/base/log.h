// The log of a daemon: spdlog's lines to stderr, without ever waiting for their readers. In
// a header alone, so that only the daemons link spdlog.
#pragma once

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "daemon/base/line_queue.h"
#include "daemon/base/log_line.h"
#include "daemon/base/settings.h"

namespace tutti {

// Before a job's name in the name of its logger, so that no job can be taken for a program.
inline constexpr std::string_view kJobLogger = "job:";

class LogSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  LogSink(const std::string& program, LogForm form, size_t lines_max)
      : program_(program),
        form_(form),
        queue_(STDERR_FILENO, lines_max, [program, form, lines_max](uint64_t count) {
          const std::string text = fmt::format(
              "{} lines are missing here: log_lines = {} waited to be written", count, lines_max);
          return format_line({.time = std::chrono::system_clock::now(),
                              .level = LogLevel::warning,
                              .program = program,
                              .pid = getpid(),
                              .job = {},
                              .message = text},
                             form);
        }) {}
  void close() { queue_.close(kGrace); }
  uint64_t dropped() const { return queue_.dropped(); }

 private:
  static constexpr Millis kGrace{200};

  void sink_it_(const spdlog::details::log_msg& msg) override {
    std::string_view job(msg.logger_name.data(), msg.logger_name.size());
    job.remove_prefix(job.starts_with(kJobLogger) ? kJobLogger.size() : job.size());
    const auto level = std::min(static_cast<LogLevel>(msg.level), LogLevel::critical);
    queue_.add(format_line({.time = msg.time,
                            .level = level,
                            .program = program_,
                            .pid = getpid(),
                            .job = job,
                            .message = {msg.payload.data(), msg.payload.size()}},
                           form_));
  }
  void flush_() override {}

  const std::string program_;
  const LogForm form_;
  LineQueue queue_;
};

// Logs a line that is about one job.
inline void log_of_job(const std::string& job, spdlog::level::level_enum level,
                       const std::string& text) {
  spdlog::default_logger()->clone(std::string(kJobLogger) + job)->log(level, text);
}

// While it lives, what is logged goes to stderr. Its end waits a moment for the last lines.
class Log {
 public:
  Log(const std::string& program, const Settings& settings, LogForm form)
      : sink_(std::make_shared<LogSink>(program, form, static_cast<size_t>(settings.log_lines))) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(program, sink_));
    spdlog::set_level(spdlog::level::from_str(settings.log_level));
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log() { close(); }

  // For a process that ends without destructors.
  void close() const { sink_->close(); }
  uint64_t dropped_lines() const { return sink_->dropped(); }  // Any thread.

 private:
  const std::shared_ptr<LogSink> sink_;
};

}  // namespace tutti

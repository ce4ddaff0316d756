#include "daemon/base/log_line.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <ctime>

#include "daemon/base/program.h"
#include "daemon/base/text.h"

namespace tutti {
namespace {

struct Level {
  std::string_view name;
  std::string_view color;
  char priority = '6';  // As syslog(3) counts.
};

// By LogLevel.
constexpr std::array kLevels = {
    Level{"trace", "\033[36m", '7'},        Level{"debug", "\033[36m", '7'},
    Level{"info", "\033[32m", '6'},         Level{"warning", "\033[33m\033[1m", '4'},
    Level{"error", "\033[31m\033[1m", '3'}, Level{"critical", "\033[31m\033[1m", '2'},
};

// RFC 3339, with milliseconds and the offset of the local zone.
std::string text_of(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
  std::tm parts{};
  localtime_r(&seconds, &parts);
  std::array<char, 32> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  const long minutes = std::abs(parts.tm_gmtoff) / 60;
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%s.%03d%c%02ld:%02ld", date.data(),
                static_cast<int>(since.count() % 1'000), parts.tm_gmtoff < 0 ? '-' : '+',
                minutes / 60, minutes % 60);
  return text.data();
}

std::string message_of(const LogLine& line) {
  std::string job = line.job.empty() ? "" : "job \"" + std::string(line.job) + "\": ";
  return printable(job.append(line.message));
}

std::string json_line(const LogLine& line) {
  Json json;
  json.open('{').field("time", text_of(line.time));
  json.field("level", kLevels.at(static_cast<size_t>(line.level)).name);
  json.field("program", line.program).field("pid", line.pid);
  if (!line.job.empty()) json.field("job", printable(std::string(line.job)));
  json.field("message", printable(std::string(line.message)));
  return json.close().line() + "\n";
}

std::string text_line(const LogLine& line, bool colored) {
  const Level& level = kLevels.at(static_cast<size_t>(line.level));
  const std::string name = colored ? std::string(level.color) + std::string(level.name) + "\033[m"
                                   : std::string(level.name);
  return text_of(line.time) + " " + name + " " + std::string(line.program) + "[" +
         std::to_string(line.pid) + "] " + message_of(line) + "\n";
}

}  // namespace

std::string format_line(const LogLine& line, LogForm form) {
  const std::string priority = {'<', kLevels.at(static_cast<size_t>(line.level)).priority, '>'};
  switch (form) {
    case LogForm::json:
      return json_line(line);
    case LogForm::json_in_journal:
      return priority + json_line(line);
    case LogForm::journal:
      return priority + message_of(line) + "\n";
    default:
      return text_line(line, form == LogForm::terminal);
  }
}

bool is_journal(int fd, std::string_view journal_stream) {
  struct stat file {};
  return fstat(fd, &file) == 0 &&
         journal_stream == std::to_string(file.st_dev) + ":" + std::to_string(file.st_ino);
}

LogForm form_of_stderr(std::string_view log_format) {
  const bool journal = is_journal(STDERR_FILENO, variable("JOURNAL_STREAM"));
  if (log_format == "json") return journal ? LogForm::json_in_journal : LogForm::json;
  if (journal) return LogForm::journal;
  return isatty(STDERR_FILENO) == 1 ? LogForm::terminal : LogForm::text;
}

}  // namespace tutti

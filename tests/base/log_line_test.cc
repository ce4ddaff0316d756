// The forms of a line of the log: its time and zone, priorities, JSON, and what is not printable.
#include "daemon/base/log_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

#include "daemon/base/fd.h"
#include "tests/support/variable.h"

namespace tutti {
namespace {

struct LogLines : testing::Test {
  LogLines() { tzset(); }
  ~LogLines() override { tzset(); }
  static LogLine line(LogLevel level, std::string_view message, std::string_view job = "") {
    return {
        .time = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'795'453'542'123)),
        .level = level,
        .program = "tuttid",
        .pid = 4711,
        .job = job,
        .message = message};
  }
  const Variable zone{"TZ", "XYZ-5:30"};
};

TEST_F(LogLines, OfTextHaveATimeWithItsZone) {
  EXPECT_EQ(format_line(line(LogLevel::info, "ready"), LogForm::text),
            "2026-11-23T22:35:42.123+05:30 info tuttid[4711] ready\n");
  EXPECT_EQ(format_line(line(LogLevel::warning, "late", "demo"), LogForm::text),
            "2026-11-23T22:35:42.123+05:30 warning tuttid[4711] job \"demo\": late\n");
  const Variable west("TZ", "XYZ+3:30");
  tzset();
  EXPECT_EQ(format_line(line(LogLevel::info, "ready"), LogForm::text),
            "2026-11-23T13:35:42.123-03:30 info tuttid[4711] ready\n");
}

TEST_F(LogLines, OfTerminalsColorTheLevelAlone) {
  EXPECT_EQ(format_line(line(LogLevel::error, "no"), LogForm::terminal),
            "2026-11-23T22:35:42.123+05:30 \033[31m\033[1merror\033[m tuttid[4711] no\n");
}

TEST_F(LogLines, OfTheJournalBeginWithTheirPriority) {
  const auto priority = [](LogLevel level) {
    return format_line(line(level, "x"), LogForm::journal);
  };
  EXPECT_EQ(priority(LogLevel::trace), "<7>x\n");
  EXPECT_EQ(priority(LogLevel::debug), "<7>x\n");
  EXPECT_EQ(priority(LogLevel::info), "<6>x\n");
  EXPECT_EQ(priority(LogLevel::warning), "<4>x\n");
  EXPECT_EQ(priority(LogLevel::error), "<3>x\n");
  EXPECT_EQ(priority(LogLevel::critical), "<2>x\n");
}

// A job's user can write anything, and would have lines of a priority, or of another time.
TEST_F(LogLines, CannotBeForgedByWhatTheySay) {
  EXPECT_EQ(format_line(line(LogLevel::info, "<0>a\n<0>b", "j"), LogForm::journal),
            "<6>job \"j\": <0>a?<0>b\n");
  EXPECT_EQ(
      format_line(line(LogLevel::info, "a\", \"pid\":1, \"\x1b\n{}\xff", "j\"k"), LogForm::json),
      "{\"time\":\"2026-11-23T22:35:42.123+05:30\",\"level\":\"info\",\"program\":\"tuttid\","
      "\"pid\":4711,\"job\":\"j\\\"k\",\"message\":\"a\\\", \\\"pid\\\":1, \\\"??{}?\"}\n");
}

TEST_F(LogLines, OfJsonAreOneObjectInTheJournalToo) {
  const std::string json =
      "{\"time\":\"2026-11-23T22:35:42.123+05:30\",\"level\":\"error\",\"program\":\"tuttid\","
      "\"pid\":4711,\"message\":\"no\"}\n";
  EXPECT_EQ(format_line(line(LogLevel::error, "no"), LogForm::json), json);
  EXPECT_EQ(format_line(line(LogLevel::error, "no"), LogForm::json_in_journal), "<3>" + json);
}

TEST(Journal, IsTheFileThatTheEnvironmentNames) {
  const Fd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  struct stat file {};
  ASSERT_EQ(fstat(null.get(), &file), 0);
  const std::string name = std::to_string(file.st_dev) + ":" + std::to_string(file.st_ino);
  EXPECT_TRUE(is_journal(null.get(), name));
  EXPECT_FALSE(is_journal(null.get(), name + "0"));
  EXPECT_FALSE(is_journal(null.get(), ""));
  EXPECT_FALSE(is_journal(-1, name));
}

}  // namespace
}  // namespace tutti

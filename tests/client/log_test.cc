// What the library writes to standard error, and when.
#include "client/rank/log.h"

#include <gtest/gtest.h>

namespace tutti::client {
namespace {

TEST(ClientLog, LevelsAreWords) {
  EXPECT_EQ(parse_log_level("debug").level, LogLevel::debug);
  EXPECT_EQ(parse_log_level("info").level, LogLevel::info);
  EXPECT_EQ(parse_log_level("warn").level, LogLevel::warn);
  EXPECT_EQ(parse_log_level("error").level, LogLevel::error);
  EXPECT_EQ(parse_log_level("off").level, LogLevel::off);
  EXPECT_TRUE(parse_log_level("off").valid);
  EXPECT_FALSE(parse_log_level("DEBUG").valid);
  EXPECT_EQ(parse_log_level("verbose").level, LogLevel::warn);
}

TEST(ClientLog, ALineHasProcessTimeAndLevel) {
  EXPECT_EQ(log_line(LogLevel::info, "rank 1 leaves", 1'763'921'142'007, 4711),
            "tutti[4711] 18:05:42.007 info: rank 1 leaves\n");
}

TEST(ClientLog, ControlCharactersCannotForgeALine) {
  EXPECT_EQ(log_line(LogLevel::warn, "job 'a\nb\x1b[2J'", 0, 1),
            "tutti[1] 00:00:00.000 warn: job 'a?b?[2J'\n");
}

}  // namespace
}  // namespace tutti::client

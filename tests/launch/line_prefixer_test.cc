// The "[rank] " before each line that a rank writes.
#include "daemon/launch/line_prefixer.h"

#include <gtest/gtest.h>

#include <string>

namespace tutti {
namespace {

TEST(LinePrefixer, ComeWholeHoweverTheyArrive) {
  LinePrefixer rank(3);
  EXPECT_EQ(rank.add("one\ntw"), "[3] one\n");
  EXPECT_EQ(rank.add("o"), "");
  EXPECT_EQ(rank.add("\n\nthree"), "[3] two\n[3] \n");
  EXPECT_EQ(rank.finish(), "[3] three\n");
  EXPECT_EQ(rank.finish(), "");
}

TEST(LinePrefixer, ProgressBarsMove) {
  LinePrefixer rank(0);
  EXPECT_EQ(rank.add(" 10%\r 20%"), "[0]  10%\r");
  EXPECT_EQ(rank.add("\r"), "") << "a \\n may follow";
  EXPECT_EQ(rank.add("\nEnd\r"), "[0]  20%\r\n");
  EXPECT_EQ(rank.add("x"), "[0] End\r");
  EXPECT_EQ(rank.add("\r"), "");
  EXPECT_EQ(rank.finish(), "[0] x\n");
}

TEST(LinePrefixer, EndlessOnesAreBroken) {
  LinePrefixer rank(0);
  const std::string half(kLineBytesMax / 2, 'x');
  EXPECT_EQ(rank.add(half), "");
  EXPECT_EQ(rank.add(half), "[0] " + half + half + "\n");
  EXPECT_EQ(rank.finish(), "");
}

}  // namespace
}  // namespace tutti

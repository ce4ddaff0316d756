// What is left of text that others have chosen.
#include "daemon/base/foreign_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using testing::HasSubstr;

TEST(ForeignText, WhatTerminalsObeyBecomesAQuestionMark) {
  EXPECT_EQ(printable("plain, k\xc3\xb6ln, \xe6\x97\xa5, \xf0\x9f\x98\x80 ~"),
            "plain, k\xc3\xb6ln, \xe6\x97\xa5, \xf0\x9f\x98\x80 ~");
  EXPECT_EQ(printable(std::string("\0\t\n\r\x1b\x7f", 6)), "??????");
  EXPECT_EQ(printable("\xc2\x80|\xc2\x9b|\xc2\x9f|\xc2\xa0"), "?|?|?|\xc2\xa0") << "C1";
  for (const char* turns : {"\xd8\x9c", "\xe2\x80\x8e", "\xe2\x80\x8f", "\xe2\x80\xaa",
                            "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa9"})
    EXPECT_EQ(printable(turns), "?");
  EXPECT_EQ(printable("\xe2\x80\xa8\xe2\x80\xa9"), "??") << "ends of lines";
  EXPECT_EQ(printable("\xff\x80z\xc3"), "??z?") << "no UTF-8";
  EXPECT_EQ(printable("\xe2\x80"), "??") << "cut";
}

TEST(ForeignText, LongTextIsCut) {
  const std::string cut = clean_text(std::string(100'000, 'y'));
  EXPECT_EQ(cut.size(), 4096u + 3);
  EXPECT_TRUE(cut.ends_with("yyy..."));
  EXPECT_EQ(clean_text(std::string(4096, 'y')), std::string(4096, 'y'));
}

TEST(ForeignText, NamesAreRefusedWithTheReason) {
  EXPECT_TRUE(check_name("the name", "k\xc3\xb6ln 1/x", 64).ok());
  EXPECT_TRUE(check_name("the name", "", 64).ok());
  const auto why = [](std::string_view name) {
    const Status refused = check_name("the name", name, 64);
    EXPECT_EQ(refused.code(), Code::invalid_argument);
    return refused.message();
  };
  EXPECT_EQ(why(std::string(65, 'x')), "the name is longer than 64 bytes");
  EXPECT_EQ(why("\xe9"), "the name is not UTF-8");
  EXPECT_THAT(why(std::string_view("a\0b", 3)), HasSubstr("the name holds a control character"));
  EXPECT_THAT(why("\xc2\x9b"), HasSubstr("the name holds a control character"));
  EXPECT_THAT(why("\xe2\x80\xae"), HasSubstr("or one that turns the direction of text"));
}

}  // namespace
}  // namespace tutti

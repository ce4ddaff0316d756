// Sizes, rates, lists, tables and JSON, as the command line reads and prints them.
#include "daemon/base/text.h"

#include <gtest/gtest.h>

#include <array>

namespace tutti {
namespace {

TEST(Text, ReadsTimes) {
  EXPECT_EQ(parse_duration("200us")->count(), 200);
  EXPECT_EQ(parse_duration("500ms")->count(), 500'000);
  EXPECT_EQ(parse_duration("30s")->count(), 30'000'000);
  EXPECT_EQ(parse_duration("2m")->count(), 120'000'000);
  EXPECT_EQ(parse_duration("1h")->count(), 3'600'000'000);
  for (const char* bad :
       {"", "30", "2M", "s", "-1s", "1.5s", "1d", "1 s", "18446744073709551615us"})
    EXPECT_EQ(parse_duration(bad).status().code(), Code::invalid_argument) << bad;
}

TEST(Text, SuggestsTheWordThatIsSpeltMostLikeAnother) {
  constexpr auto kWords = std::to_array<std::string_view>({"stop", "status", "strategy", "top"});
  EXPECT_EQ(did_you_mean("stauts", kWords), "; did you mean 'status'?");
  EXPECT_EQ(did_you_mean("statu", kWords), "; did you mean 'status'?");
  EXPECT_EQ(did_you_mean("sttop", kWords), "; did you mean 'stop'?");
  EXPECT_EQ(did_you_mean("strategies", kWords), "; did you mean 'strategy'?");
  EXPECT_EQ(did_you_mean("tpo", kWords), "; did you mean 'top'?");
  EXPECT_EQ(did_you_mean("colour", kWords), "");
  EXPECT_EQ(did_you_mean("", kWords), "");
  EXPECT_EQ(did_you_mean("xy", {}), "");
}

TEST(Text, ByteSizes) {
  EXPECT_EQ(*parse_byte_size("4"), 4u);
  EXPECT_EQ(*parse_byte_size("64K"), 65536u);
  EXPECT_EQ(*parse_byte_size("1MiB"), 1048576u);
  EXPECT_EQ(*parse_byte_size("2g"), 2147483648u);
  for (const char* bad : {"", "x", "4P", "-1", "1.5M", "99999999999999999999", "17179869184G"})
    EXPECT_EQ(parse_byte_size(bad).status().code(), Code::invalid_argument) << bad;
  EXPECT_NE(parse_byte_size("4 apples").status().message().find("4 apples"), std::string::npos);
  EXPECT_EQ(format_byte_size(0), "0 B");
  EXPECT_EQ(format_byte_size(65536), "64 KiB");
  EXPECT_EQ(format_byte_size(3 << 29), "1.50 GiB");
}

TEST(Text, Rates) {
  EXPECT_EQ(*parse_rate("1gbit"), 1'000'000'000u);
  EXPECT_EQ(*parse_rate("250Mbit"), 250'000'000u);
  for (const char* bad : {"1", "1g", "gbit", "0gbit", "1gbps"})
    EXPECT_EQ(parse_rate(bad).status().code(), Code::invalid_argument) << bad;
}

TEST(Text, RanksPerHost) {
  EXPECT_EQ(*parse_per_host("2", 3), (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(*parse_per_host("3,1", 2), (std::vector<int>{3, 1}));
  for (const char* bad : {"", "0", "2,", "1,2,3", "x", "-1", "1025"})
    EXPECT_EQ(parse_per_host(bad, 2).status().code(), Code::invalid_argument) << bad;
}

TEST(Text, HostNamesGoOnAfterZ) {
  EXPECT_EQ(host_name(0), "a");
  EXPECT_EQ(host_name(25), "z");
  EXPECT_EQ(host_name(26), "aa");
  EXPECT_EQ(host_name(27), "ab");
  EXPECT_EQ(host_name(701), "zz");
  EXPECT_EQ(host_name(702), "aaa");
}

TEST(Text, Numbers) {
  EXPECT_EQ(format_number(0), "0");
  EXPECT_EQ(format_number(0.046), "0.05");
  EXPECT_EQ(format_number(12.345), "12.35");
  EXPECT_EQ(format_number(123.45), "123.5");
  EXPECT_EQ(format_number(123456.7), "123457");
}

TEST(Text, TablesShowNoControlCharacters) {
  Table table({"JOB"});
  table.add({"red\x1b[2J\nfake\x7f"});
  EXPECT_EQ(table.text(), "JOB\nred?[2J?fake?\n");
}

TEST(Text, TableLeansNumbersRightAndWordsLeft) {
  Table table({"size", "op"});
  table.add({"4", "sum"});
  table.add({"1048576", "none"});
  EXPECT_EQ(table.text(),
            "   size  op\n"
            "      4  sum\n"
            "1048576  none\n");
}

TEST(Text, JsonNestsAndEscapes) {
  Json json;
  json.open('{').field("a", "q\"\\\n").key("b").open('[').value(1u).value(0.5);
  json.open('{').close().value(true).close().field("c", uint64_t{2}).close();
  EXPECT_EQ(json.line(), R"({"a":"q\"\\\u000a","b":[1,0.5,{},true],"c":2})");
}

}  // namespace
}  // namespace tutti

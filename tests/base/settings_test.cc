// The table of settings, and reading it from text, files and the environment.
#include "daemon/base/settings.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "proto/board.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/variable.h"

namespace tutti {
namespace {

const SettingRow& row_of(std::string_view name) {
  for (const SettingRow& row : setting_rows())
    if (row.name == name) return row;
  ADD_FAILURE() << "no row " << name;
  return setting_rows().front();
}

class SettingsFile : public testing::Test {
 protected:
  Status read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_settings_file(settings_, path_);
  }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_ / "tuttid.conf";
  Settings settings_;
};

TEST(Settings, EveryRowHasOneNameHelpAndADefaultInRange) {
  std::set<std::string_view> names;
  const Settings defaults;
  for (const SettingRow& row : setting_rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.help.empty()) << row.name;
    EXPECT_NE(row.text == nullptr, row.number == nullptr) << row.name;
    if (row.number == nullptr) continue;
    EXPECT_LE(row.min, defaults.*row.number) << row.name;
    EXPECT_GE(row.max, defaults.*row.number) << row.name;
  }
}

TEST(Settings, EveryRowTakesItsOwnTextBack) {
  const Settings defaults;
  for (const SettingRow& row : setting_rows()) {
    Settings settings;
    const std::string text = setting_text(defaults, row);
    EXPECT_EQ(set_setting(settings, row.name, text), Status());
    EXPECT_EQ(setting_text(settings, row), text);
  }
}

TEST(Settings, RangesEndWhereTheySay) {
  for (const SettingRow& row : setting_rows()) {
    if (row.number == nullptr) continue;
    Settings settings;
    EXPECT_TRUE(set_setting(settings, row.name, std::to_string(row.min)).ok()) << row.name;
    EXPECT_TRUE(set_setting(settings, row.name, std::to_string(row.max)).ok()) << row.name;
    EXPECT_EQ(settings.*row.number, row.max);
    for (const int64_t outside : {row.min - 1, row.max + 1})
      EXPECT_EQ(set_setting(settings, row.name, std::to_string(outside)).code(),
                Code::invalid_argument);
    EXPECT_EQ(settings.*row.number, row.max) << "a refused value was kept";
  }
}

// A host's part of a slice may have nearly twice the least there is, and travels twice as long
// where its floats have 16 bits.
TEST(Settings, TheSmallestFramesHoldAnyPartOfASlice) {
  EXPECT_GE(row_of("frame_bytes_max").min, int64_t{4 * kSlicePartBytes});
}

TEST(Settings, RefusalsNameTheSettingTheTextAndTheRange) {
  Settings settings;
  for (const std::string text : {"", "ten", "2M", "99ms", "2h", "0x200", " 200", "200 ",
                                 "99999999999999999999", "9999999999999h", "200.5", "-1s"})
    EXPECT_EQ(set_setting(settings, "silence_ms", text).message(),
              "setting silence_ms = '" + text +
                  "': expected a number from 100 to 3600000 "
                  "(milliseconds), or a time such as 500ms, 30s, 2m or 1h");
  for (const std::string text : {"4095", "1s", "4X", "2G"})
    EXPECT_EQ(set_setting(settings, "slice_bytes", text).message(),
              "setting slice_bytes = '" + text +
                  "': expected a number from 4096 to 1073741824 "
                  "(bytes), or a size such as 64K, 16M or 1G");
  EXPECT_EQ(set_setting(settings, "jobs_max", "1K").message(),
            "setting jobs_max = '1K': expected a number from 1 to 65536");
  for (const std::string text : {"", "udp", "tcp grpc", "tc"})
    EXPECT_EQ(set_setting(settings, "transport", text).message(),
              "setting transport = '" + text + "': expected one of: auto tcp grpc");
  EXPECT_EQ(settings.transport, "auto");
  EXPECT_EQ(set_setting(settings, "log_level", "loud").message(),
            "setting log_level = 'loud': expected one of: trace debug info warn error off");
  EXPECT_EQ(set_setting(settings, "colour", "red"),
            not_found("there is no setting 'colour'; tuttid --help-all lists them"));
  EXPECT_EQ(set_setting(settings, "scoket", "/s").message(),
            "there is no setting 'scoket'; did you mean 'socket'?");
}

TEST(Settings, NumbersMayHaveUnits) {
  Settings settings;
  const auto number = [&](std::string_view name, std::string_view text) {
    EXPECT_EQ(set_setting(settings, name, text), Status()) << name << " = " << text;
    return settings.*row_of(name).number;
  };
  EXPECT_EQ(number("silence_ms", "500ms"), 500);
  EXPECT_EQ(number("silence_ms", "30s"), 30'000);
  EXPECT_EQ(number("silence_ms", "2m"), 120'000);
  EXPECT_EQ(number("silence_ms", "1h"), 3'600'000);
  EXPECT_EQ(number("silence_ms", "300000us"), 300);
  EXPECT_EQ(number("stay_awake_us", "50us"), 50);
  EXPECT_EQ(number("stay_awake_us", "1ms"), 1'000);
  EXPECT_EQ(number("segment_bytes", "64M"), int64_t{64} << 20);
  EXPECT_EQ(number("segment_bytes", "64MiB"), int64_t{64} << 20);
  EXPECT_EQ(number("segment_bytes", "2T"), int64_t{2} << 40);
  EXPECT_EQ(number("frame_bytes_max", "1G"), int64_t{1} << 30);
}

TEST(Settings, FlagsAndEnvironmentAreSpeltFromTheName) {
  EXPECT_EQ(flag_of(row_of("join_timeout_ms")), "--join-timeout-ms");
  EXPECT_EQ(environment_name_of(row_of("join_timeout_ms")), "TUTTI_JOIN_TIMEOUT_MS");
}

TEST_F(SettingsFile, AnAddressOfAnotherFormIsNamedWithFileAndLine) {
  for (const std::string line :
       {"listen = 10.0.0.1", "listen = ", "coordinator = node1", "data_address = 10.0.0.1:7601",
        "metrics_listen = 9464", "etcd = 10.0.0.1:2379,10.0.0.2", "etcd = a:1,,b:2"}) {
    const Status status = read("log_level = info\n" + line + "\n");
    EXPECT_EQ(status.code(), Code::invalid_argument) << line;
    const std::string name = line.substr(0, line.find(' '));
    EXPECT_TRUE(status.message().starts_with(path_ + ":2: setting " + name + " = '"))
        << status.message();
    EXPECT_NE(status.message().find("': expected "), std::string::npos) << status.message();
  }
  EXPECT_TRUE(read("listen = [::1]:0\ncoordinator =\ndata_address = [fd00::1]\n").ok());
  EXPECT_TRUE(read("etcd = a:2379,[fd00::2]:2379\nmetrics_listen = 127.0.0.1:0\n").ok());
}

TEST_F(SettingsFile, ReadsLinesCommentsAndQuotes) {
  EXPECT_EQ(read("# a comment\n\n  host = a \nslice_bytes=8192 # why\ntoken = \"x y\"\n"),
            Status());
  EXPECT_EQ(settings_.host, "a");
  EXPECT_EQ(settings_.slice_bytes, 8192);
  EXPECT_EQ(settings_.token, "x y");
}

TEST_F(SettingsFile, ErrorsNameFileAndLine) {
  EXPECT_EQ(read("host = a\n\nslice_bytes = 1\n").message(),
            path_ +
                ":3: setting slice_bytes = '1': expected a number from 4096 to 1073741824 "
                "(bytes), or a size such as 64K, 16M or 1G");
  EXPECT_EQ(read("host a\n"), invalid_argument(path_ + ":1: expected: name = value"));
  EXPECT_EQ(
      read("\ncolour = red\n"),
      invalid_argument(path_ + ":2: there is no setting 'colour'; tuttid --help-all lists them"));
}

TEST_F(SettingsFile, ASettingGivenTwiceIsAFault) {
  EXPECT_EQ(read("host = a\nlisten = a:1\nhost = a\n").message(),
            path_ + ":3: setting host is given twice, first in line 1; remove one of the lines");
}

// The value may be a token.
TEST_F(SettingsFile, QuotesThatAreNotBalancedAreAFaultThatShowsNoValue) {
  for (const std::string value : {"\"sesame", "sesame\"", "\"se\"same", "\"", "\"se\"sa\"me\""})
    EXPECT_EQ(read("token = " + value + "\n").message(),
              path_ +
                  ":1: setting token: the quotes are not balanced around its value; write "
                  "token = \"...\"")
        << value;
  EXPECT_EQ(settings_.token, "");
  EXPECT_TRUE(read("token = \"\"\nhost = \"a\" # \"why\n").ok());
}

TEST_F(SettingsFile, EachFaultIsFoundInTheOrderOfTheLines) {
  std::ofstream(path_) << "hots = a\nlog_level = loud\nhost = b\njobs_max\n";
  Faults faults;
  const Status first = read_settings_file(settings_, path_, &faults);
  ASSERT_EQ(faults.size(), 3u);
  EXPECT_EQ(first, faults[0]);
  EXPECT_TRUE(faults[0].message().starts_with(path_ + ":1: there is no setting 'hots'; did you "));
  EXPECT_TRUE(faults[1].message().starts_with(path_ + ":2: setting log_level = 'loud'"));
  EXPECT_EQ(faults[2].message(), path_ + ":4: expected: name = value");
  EXPECT_EQ(settings_.host, "b");
}

// tuttid does without its default file only for NOT_FOUND.
TEST_F(SettingsFile, OnlyAFileThatIsNotThereIsNotFound) {
  EXPECT_EQ(read_settings_file(settings_, "/nowhere/tutti.conf"),
            not_found("cannot read settings file /nowhere/tutti.conf: No such file or directory"));
}

TEST_F(SettingsFile, ADirectoryIsNoSettingsFile) {
  const std::string directory = std::filesystem::temp_directory_path();
  EXPECT_EQ(read_settings_file(settings_, directory).message(),
            "cannot read settings file " + directory + ": Is a directory");
}

TEST_F(SettingsFile, TheEnvironmentOverridesTheFile) {
  ASSERT_TRUE(read("host = a\ntoken = t\n").ok());
  const Variable ours("TUTTI_HOST", "b");
  const Variable another("HOST", "c");
  EXPECT_EQ(read_settings_environment(settings_), Status());
  EXPECT_EQ(settings_.host, "b");
  EXPECT_EQ(settings_.token, "t");
}

TEST_F(SettingsFile, MayBeginWithAByteOrderMark) {
  ASSERT_TRUE(read("\xEF\xBB\xBFhost = a\n").ok());
  EXPECT_EQ(settings_.host, "a");
}

TEST(Settings, ATimeThatIsFinerThanItsUnitIsNamedWithTheUnits) {
  Settings settings;
  EXPECT_EQ(set_setting(settings, "silence_ms", "1000us"),
            invalid_argument("setting silence_ms = '1000us': expected a number from 100 to 3600000 "
                             "(milliseconds), or a time such as 500ms, 30s, 2m or 1h"));
  EXPECT_EQ(set_setting(settings, "silence_ms", "10us"),
            invalid_argument("setting silence_ms = '10us': this is finer than the unit of the "
                             "setting; expected a number from 100 to 3600000 (milliseconds), or a "
                             "time such as 500ms, 30s, 2m or 1h"));
}

TEST(Settings, EnvironmentErrorsNameTheVariable) {
  Settings settings;
  const Variable variable("TUTTI_SILENCE_MS", "soon");
  EXPECT_EQ(
      read_settings_environment(settings),
      invalid_argument("environment TUTTI_SILENCE_MS: setting silence_ms = 'soon': "
                       "expected a number from 100 to 3600000 (milliseconds), or a time such as "
                       "500ms, 30s, 2m or 1h"));
}

}  // namespace
}  // namespace tutti

// Errors as values, and the table of settings.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "daemon/base/fd.h"
#include "daemon/base/roster.h"
#include "daemon/base/settings.h"
#include "daemon/base/status.h"
#include "daemon/base/status_message.h"
#include "proto/board.h"

namespace tutti {
namespace {

// ---- Status and Result.

TEST(StatusMessage, TextStaysAsItIsAndOtherBytesAreReplaced) {
  for (const std::string text : {"", "plain", "\u00e9\u20ac\U0001f600", "\uffff\U0010ffff"})
    EXPECT_EQ(well_formed(text), text);
  EXPECT_EQ(well_formed("\xff\xfe"), "??");
  EXPECT_EQ(well_formed("a\xc3"), "a?") << "cut";
  EXPECT_EQ(well_formed("\xc3z"), "?z");
  EXPECT_EQ(well_formed("\xc0\x80"), "??") << "longer than need be";
  EXPECT_EQ(well_formed("\xe0\x80\x80"), "???");
  EXPECT_EQ(well_formed("\xed\xa0\x80"), "???") << "a surrogate";
  EXPECT_EQ(well_formed("\xf4\x90\x80\x80"), "????") << "past the last";
  EXPECT_EQ(well_formed("\x80"), "?");
}

TEST(Status, IsOkUnlessToldOtherwise) {
  EXPECT_TRUE(Status().ok());
  EXPECT_EQ(Status().to_string(), "OK");
  EXPECT_EQ(Status().culprit(), Culprit());
  EXPECT_EQ(Status().culprit().rank, -1);
}

TEST(Status, SaysWhoWhatAndWhere) {
  const Status status = unavailable("rank 3 (host b, pid 4711) left", {.rank = 3, .host = "b"});
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.to_string(), "UNAVAILABLE: rank 3 (host b, pid 4711) left");
  EXPECT_EQ(status.culprit().rank, 3);
  EXPECT_EQ(status.culprit().host, "b");
}

TEST(Status, CodesHaveGrpcsNumbersAndNames) {
  EXPECT_EQ(static_cast<int>(Code::failed_precondition), 9);
  EXPECT_EQ(name_of(Code::failed_precondition), "FAILED_PRECONDITION");
  EXPECT_EQ(name_of(Code::unauthenticated), "UNAUTHENTICATED");
  for (int number = 0; number <= 16; ++number) EXPECT_EQ(static_cast<int>(code_of(number)), number);
}

TEST(Status, NumbersFromOutsideThatAreNoCodeAreUnknown) {
  for (const int number : {-1, 17, 1 << 30}) EXPECT_EQ(code_of(number), Code::unknown);
  EXPECT_EQ(name_of(static_cast<Code>(99)), "UNKNOWN");
}

TEST(Status, EveryShortConstructorHasItsCode) {
  const std::map<Code, Status> made = {
      {Code::invalid_argument, invalid_argument("x")},
      {Code::deadline_exceeded, deadline_exceeded("x")},
      {Code::not_found, not_found("x")},
      {Code::already_exists, already_exists("x")},
      {Code::permission_denied, permission_denied("x")},
      {Code::resource_exhausted, resource_exhausted("x")},
      {Code::failed_precondition, failed_precondition("x")},
      {Code::aborted, aborted("x")},
      {Code::internal, internal_error("x")},
      {Code::unavailable, unavailable("x")},
      {Code::data_loss, data_loss("x")},
      {Code::unauthenticated, unauthenticated("x")},
  };
  for (const auto& [code, status] : made) {
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), "x");
  }
}

TEST(Status, ErrnoBecomesACodeAndASentence) {
  const auto status_of = [](int error) {
    errno = error;
    return errno_status("cannot bind /run/x.sock");
  };
  EXPECT_EQ(status_of(EACCES).code(), Code::permission_denied);
  EXPECT_EQ(status_of(ENOENT).code(), Code::not_found);
  EXPECT_EQ(status_of(EMFILE).code(), Code::resource_exhausted);
  EXPECT_EQ(status_of(EADDRINUSE).to_string(),
            "UNAVAILABLE: cannot bind /run/x.sock: Address already in use");
}

TEST(Result, HoldsAValueOrTheReasonItHasNone) {
  Result<std::string> good = std::string("here");
  EXPECT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(*good, "here");
  EXPECT_EQ(good->size(), 4u);
  const Result<std::string> bad = not_found("nowhere");
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status(), not_found("nowhere"));
}

TEST(Result, GivesAwayWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(7);
  const std::unique_ptr<int> taken = *std::move(made);
  EXPECT_EQ(*taken, 7);
}

TEST(ResultDeathTest, ReadingAValueThatIsNotThereIsABug) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Result<int> bad = not_found("nowhere");
  EXPECT_DEATH((void)*bad, "tutti: bug at .*the value of a failed Result was read");
  EXPECT_DEATH((void)Result<int>(Status()), "a Result without a value needs an error");
}

TEST(Roster, NamesARankInOneWay) {
  const Roster roster = {.ranks = {{.pid = 1, .host = "a"}, {.pid = 4711, .host = "b"}}};
  EXPECT_EQ(describe_rank(roster, 1), "rank 1 (host b, pid 4711)");
}

// ---- Fd.

TEST(Fd, ClosesOnceAndMoves) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int number = ends[0];
  const Fd writer(ends[1]);
  Fd first(number);
  Fd second = std::move(first);
  EXPECT_EQ(second.get(), number);
  EXPECT_FALSE(first.valid());
  second.reset();
  EXPECT_FALSE(second.valid());
  EXPECT_EQ(close(number), -1);
  EXPECT_EQ(errno, EBADF);
}

// ---- Settings.

const SettingRow& row_of(std::string_view name) {
  for (const SettingRow& row : setting_rows())
    if (row.name == name) return row;
  ADD_FAILURE() << "no row " << name;
  return setting_rows().front();
}

class SettingsFile : public testing::Test {
 protected:
  SettingsFile() {
    char name[] = "/tmp/tutti_settings_XXXXXX";
    const Fd made(mkstemp(name));
    path_ = name;
  }
  ~SettingsFile() override { unlink(path_.c_str()); }

  Status read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_settings_file(settings_, path_);
  }

  std::string path_;
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
    EXPECT_LE(row.least, defaults.*row.number) << row.name;
    EXPECT_GE(row.most, defaults.*row.number) << row.name;
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
    EXPECT_TRUE(set_setting(settings, row.name, std::to_string(row.least)).ok()) << row.name;
    EXPECT_TRUE(set_setting(settings, row.name, std::to_string(row.most)).ok()) << row.name;
    EXPECT_EQ(settings.*row.number, row.most);
    for (const int64_t outside : {row.least - 1, row.most + 1})
      EXPECT_EQ(set_setting(settings, row.name, std::to_string(outside)).code(),
                Code::invalid_argument);
    EXPECT_EQ(settings.*row.number, row.most) << "a refused value was kept";
  }
}

// A host's part of a slice may have nearly twice the least there is, and travels twice as long
// where its floats have 16 bits.
TEST(Settings, TheSmallestFramesHoldAnyPartOfASlice) {
  EXPECT_GE(row_of("frame_bytes_max").least, int64_t{4 * kSlicePartBytes});
}

TEST(Settings, RefusalsNameTheSettingTheTextAndTheRange) {
  Settings settings;
  for (const std::string text :
       {"", "ten", "200ms", "0x200", " 200", "200 ", "99999999999999999999", "200.5"})
    EXPECT_EQ(set_setting(settings, "silence_ms", text).message(),
              "setting silence_ms = '" + text + "': expected a number from 100 to 3600000");
  for (const std::string text : {"", "udp", "tcp grpc", "tc"})
    EXPECT_EQ(set_setting(settings, "transport", text).message(),
              "setting transport = '" + text + "': expected one of: auto tcp grpc");
  EXPECT_EQ(settings.transport, "auto");
  EXPECT_EQ(set_setting(settings, "colour", "red"), not_found("there is no setting 'colour'"));
}

TEST(Settings, FlagsAndEnvironmentAreSpeltFromTheName) {
  EXPECT_EQ(flag_of(row_of("join_timeout_ms")), "--join-timeout-ms");
  EXPECT_EQ(environment_name_of(row_of("join_timeout_ms")), "TUTTI_JOIN_TIMEOUT_MS");
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
            path_ + ":3: setting slice_bytes = '1': expected a number from 4096 to 1073741824");
  EXPECT_EQ(read("host a\n"), invalid_argument(path_ + ":1: expected: name = value"));
  EXPECT_EQ(read("\ncolour = red\n"), not_found(path_ + ":2: there is no setting 'colour'"));
}

TEST_F(SettingsFile, AFileThatIsNotThereIsNamed) {
  EXPECT_EQ(read_settings_file(settings_, "/nowhere/tutti.conf"),
            not_found("cannot read settings file /nowhere/tutti.conf"));
}

TEST_F(SettingsFile, TheEnvironmentOverridesTheFile) {
  ASSERT_TRUE(read("host = a\ntoken = t\n").ok());
  const std::map<std::string, const char*> environment = {{"TUTTI_HOST", "b"}, {"HOST", "c"}};
  const auto lookup = [&](const std::string& name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second;
  };
  EXPECT_EQ(read_settings_environment(settings_, lookup), Status());
  EXPECT_EQ(settings_.host, "b");
  EXPECT_EQ(settings_.token, "t");
}

TEST(Settings, EnvironmentErrorsNameTheVariable) {
  Settings settings;
  const Status status = read_settings_environment(settings, [](const std::string& name) {
    return name == "TUTTI_SILENCE_MS" ? "soon" : nullptr;
  });
  EXPECT_EQ(status, invalid_argument("environment TUTTI_SILENCE_MS: setting silence_ms = 'soon': "
                                     "expected a number from 100 to 3600000"));
}

}  // namespace
}  // namespace tutti

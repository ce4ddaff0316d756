// Errors as values, and small owned things: descriptors, messages, rosters.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <memory>

#include "daemon/base/fd.h"
#include "daemon/base/roster.h"
#include "daemon/base/status.h"
#include "daemon/base/status_message.h"

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

TEST(Status, AFailureWithoutMemorySaysSoAndKeepsItsRank) {
  const Status status = Status::without_memory(Code::unavailable, 3);
  EXPECT_EQ(status.to_string(), "UNAVAILABLE: out of memory");
  EXPECT_EQ(status.culprit(), (Culprit{3, ""}));
  EXPECT_EQ(status, unavailable("out of memory", {3, ""}));
  EXPECT_NE(status, Status::without_memory(Code::unavailable, 2));
  EXPECT_NE(status, unavailable("out of memory", {3, "b"}));
}

TEST(Status, CopiesShareTheirTexts) {
  const Status status = unavailable("rank 3 left", {3, "b"});
  const Status copy = status;
  EXPECT_EQ(copy, status);
  EXPECT_EQ(&copy.message(), &status.message());
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

}  // namespace
}  // namespace tutti

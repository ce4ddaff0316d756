// Texts of whole messages are cleaned, however deep they lie.
#include "daemon/base/foreign_text.h"

#include <gtest/gtest.h>

#include "proto/session.pb.h"

namespace tutti {
namespace {

TEST(SessionForeignText, EachTextOfAMessageIsCleanedAndNothingElse) {
  v1::WorkerReport report;
  report.set_state("failed:\x1b[2J");
  report.set_pid(27);
  report.mutable_departures()->mutable_cause()->set_message("a\nb");
  report.mutable_tuning()->add_times()->set_strategy("ri\tng");
  report.mutable_tuning()->add_links()->set_to("\xc2\x9b");
  report.mutable_pass()->set_signature("\x1b\xff");
  clean_texts(report);
  EXPECT_EQ(report.state(), "failed:?[2J");
  EXPECT_EQ(report.pid(), 27u);
  EXPECT_EQ(report.departures().cause().message(), "a?b");
  EXPECT_EQ(report.tuning().times(0).strategy(), "ri?ng");
  EXPECT_EQ(report.tuning().links(0).to(), "?");
  EXPECT_EQ(report.pass().signature(), "\x1b\xff") << "bytes are no text";
}

TEST(SessionForeignText, WhatIsAbsentStaysSo) {
  v1::WorkerReport report;
  v1::Welcome welcome;
  welcome.add_hosts("a\x7f");
  clean_texts(report);
  clean_texts(welcome);
  EXPECT_EQ(report.ByteSizeLong(), 0u);
  EXPECT_EQ(welcome.hosts(0), "a?");
}

}  // namespace
}  // namespace tutti

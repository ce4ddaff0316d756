// Settings that are read again while the agent runs.
#include "daemon/base/reload.h"

#include <gmock/gmock.h>

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Reload, TakesWhatCanChangeAndNamesTheRest) {
  Settings running;
  Settings read;
  read.listen = "10.0.0.1:7601";
  read.log_level = "debug";
  read.op_timeout_ms = 5'000;
  read.admin_group = "staff";
  const ReloadReport report = compare_settings(running, read);
  EXPECT_THAT(report.changed,
              ElementsAre("log_level: \"debug\" from now on, until now \"info\"",
                          "op_timeout_ms: \"5000\" for jobs that start now, until now \"30000\""));
  EXPECT_THAT(report.kept,
              ElementsAre("listen: \"127.0.0.1:7601\" until a restart, then \"10.0.0.1:7601\"",
                          "admin_group: empty until a restart, then \"staff\""));
  copy_reloadable(running, read);
  EXPECT_EQ(running.log_level, "debug");
  EXPECT_EQ(running.op_timeout_ms, 5'000);
  EXPECT_EQ(running.listen, "127.0.0.1:7601");
  EXPECT_EQ(compare_settings(running, read).kept, report.kept);  // Until it is restarted.
  EXPECT_THAT(compare_settings(running, read).changed, IsEmpty());
}

TEST(Reload, NamesNoToken) {
  Settings read;
  read.token = "sesame";
  EXPECT_THAT(compare_settings(Settings(), read).kept,
              ElementsAre("token: the one of before until a restart"));
}

}  // namespace
}  // namespace tutti

// What the settings of slices, links and early frames need of each other.
#include "daemon/worker/limits.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "proto/board.h"

namespace tutti {
namespace {

class Numbers : public ::testing::TestWithParam<std::string> {};

// At the least and at the most of every setting that the others depend on.
TEST_P(Numbers, LinksHoldWhatOneHostSendsAnother) {
  const auto rows = setting_rows();
  const auto row = std::ranges::find(rows, GetParam(), &SettingRow::name);
  ASSERT_NE(row, rows.end());
  for (const int64_t value : {row->min, row->max}) {
    Settings settings;
    settings.*row->number = value;
    const EpochOptions epoch = epoch_options(settings);
    const EngineLimits engine = engine_limits(settings);
    const LinkLimits link = link_limits(settings, 4);
    const uint64_t slices = static_cast<uint64_t>(engine.slices_in_flight) *
                            static_cast<uint64_t>(engine.ops_in_flight);
    const uint64_t slice = whole_slice_bytes(epoch.slice_bytes, 1);
    EXPECT_GE(link.queue_bytes_max, epoch.early_bytes + 4 * slices * slice) << value;
    EXPECT_GE(link.frame_bytes_max, 2 * slice) << value;
    EXPECT_GE(engine.kept_early_bytes_max / 65'535, epoch.early_bytes) << "from all hosts";
    EXPECT_EQ(pipeline(settings).slice_bytes, epoch.slice_bytes) << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, Numbers,
                         ::testing::Values("slice_bytes", "slices_in_flight", "ops_in_flight",
                                           "early_bytes", "link_queue_bytes", "frame_bytes_max"));

TEST(DataStreams, AreAsManyAsTheSettingOrTheCoresSay) {
  const auto streams = [](const std::string& setting, size_t cores) {
    Settings settings;
    settings.data_streams = setting;
    return link_limits(settings, cores).streams;
  };
  for (const auto& [cores, most] : {std::pair(2, 0), std::pair(7, 0), std::pair(8, 2),
                                    std::pair(15, 2), std::pair(16, 4), std::pair(200, 4)})
    EXPECT_EQ(streams("auto", static_cast<size_t>(cores)), most) << cores;
  EXPECT_EQ(streams("1", 200), 0) << "the link's own connection";
  EXPECT_EQ(streams("16", 2), 16);
}

}  // namespace
}  // namespace tutti

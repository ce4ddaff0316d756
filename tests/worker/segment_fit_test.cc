// How large segments are where limits of the processes leave less room than the setting asks for.
#include "daemon/worker/segment_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "proto/board.h"
#include "proto/recorder.h"
#include "tests/support/memory_limit.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGib = uint64_t{1} << 30;

uint64_t shared_bytes(uint32_t local_ranks) {
  return board_bytes(local_ranks) + recorder_bytes(local_ranks);
}

TEST(SegmentFit, WithoutLimitsItIsTheSetting) {
  const std::vector<SegmentRoom> rooms(3);
  const Result<SegmentFit> fit = fit_segments(64 * kGib, 2, rooms);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->bytes, 64 * kGib);
  EXPECT_EQ(fit->why, "");
}

TEST(SegmentFit, TheLeastRoomCountsAndIsHalfLeft) {
  const std::vector<SegmentRoom> rooms = {
      {.whose = "the worker"},
      {.whose = "rank 0", .address_bytes = shared_bytes(2) + 40 * kGib},
      {.whose = "rank 1", .address_bytes = shared_bytes(2) + 8 * kGib},
  };
  const Result<SegmentFit> fit = fit_segments(64 * kGib, 2, rooms);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->bytes, 2 * kGib);
  EXPECT_EQ(fit->why, "address space (ulimit -v) of rank 1");
}

TEST(SegmentFit, AFileIsNotLargerThanItsLimit) {
  const std::vector<SegmentRoom> rooms = {{.whose = "the worker", .file_bytes = 5 * kGib + 1}};
  const Result<SegmentFit> fit = fit_segments(64 * kGib, 2, rooms);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->bytes, 5 * kGib) << "whole pages";
  EXPECT_EQ(fit->why, "file size (ulimit -f) of the worker");
}

TEST(SegmentFit, ALowSettingIsTakenAsItIs) {
  const std::vector<SegmentRoom> rooms = {{.whose = "rank 0", .address_bytes = 2 * kGib}};
  const Result<SegmentFit> fit = fit_segments(1 << 20, 1, rooms);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->bytes, 1u << 20);
}

TEST(SegmentFit, TooLittleNamesTheLimit) {
  for (const SegmentRoom& room :
       {SegmentRoom{.whose = "rank 1", .address_bytes = shared_bytes(2) + (1 << 20)},
        SegmentRoom{.whose = "rank 1", .address_bytes = 1},
        SegmentRoom{.whose = "rank 1", .file_bytes = board_bytes(2) - 1}}) {
    const Result<SegmentFit> fit = fit_segments(64 * kGib, 2, std::vector{room});
    EXPECT_EQ(fit.status().code(), Code::resource_exhausted);
    const std::string limit =
        room.file_bytes == UINT64_MAX ? "address space (ulimit -v)" : "file size (ulimit -f)";
    EXPECT_THAT(fit.status().message(), HasSubstr("the limit of " + limit + " of rank 1"));
  }
}

TEST(SegmentFit, TheRoomOfAProcessIsWhatItsLimitLeaves) {
  if (!testing::memory_can_run_out()) GTEST_SKIP() << "a sanitizer maps more than the limit";
  EXPECT_EQ(segment_room(0, "a rank that is not visible", 1).address_bytes, UINT64_MAX);
  const pid_t child = fork();
  if (child == 0) {
    testing::limit_memory(8 * kGib);  // Beyond what other tests of this process have mapped.
    const uint64_t one = segment_room(getpid(), "", 1).address_bytes;
    const uint64_t two = segment_room(getpid(), "", 2).address_bytes;
    _exit(one > 7 * kGib && one <= 8 * kGib && two > 0 && two <= one / 2 + (1 << 20) ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tutti

// What control groups grant, on trees of files as the kernel shows them.
#include "daemon/base/cpu_quota.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace tutti {
namespace {

class CpuQuota : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  size_t quota() const { return cpu_quota(root_); }

  const TemporaryDirectory directory_;
  const std::string root_ = directory_.string();
};

TEST_F(CpuQuota, NothingThereIsNoLimit) {
  EXPECT_EQ(quota(), SIZE_MAX);
  write("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(quota(), SIZE_MAX);
}

TEST_F(CpuQuota, OfAContainerIsThatOfTheTopmostGroupItSees) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota(), 4u);
  write("/proc/self/cgroup", "0::/../../kubepods/pod7\n");
  EXPECT_EQ(quota(), 4u);
}

TEST_F(CpuQuota, TheLeastOfAllGroupsAboveCounts) {
  write("/proc/self/cgroup", "0::/jobs/a/b\n");
  write("/sys/fs/cgroup/jobs/a/b/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/jobs/a/cpu.max", "250000 100000\n");
  write("/sys/fs/cgroup/jobs/cpu.max", "800000 100000\n");
  EXPECT_EQ(quota(), 2u) << "whole cores";
  write("/sys/fs/cgroup/jobs/a/b/cpu.max", "20000 100000\n");
  EXPECT_EQ(quota(), 1u) << "at least one";
}

TEST_F(CpuQuota, OfTheFirstVersion) {
  write("/proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/docker/7\n3:memory:/y\n0::/\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), SIZE_MAX);
  write("/sys/fs/cgroup/cpu,cpuacct/docker/7/cpu.cfs_quota_us", "300000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/7/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 3u);
  write("/proc/self/cgroup", "4:cpuacct:/docker/7\n");
  EXPECT_EQ(quota(), SIZE_MAX) << "another controller";
}

TEST_F(CpuQuota, GarbageIsNoLimit) {
  write("/proc/self/cgroup", "0::a\n0::/a\nx\n::\n7:cpu\n");
  write("/sys/fs/cgroup/a/cpu.max", "many\n");
  write("/sys/fs/cgroup/cpu.max", "100000 0\n");
  EXPECT_EQ(quota(), SIZE_MAX);
}

}  // namespace
}  // namespace tutti

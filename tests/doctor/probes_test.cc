// The questions of `tutti doctor` to this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/doctor/network_probes.h"
#include "daemon/doctor/system_probes.h"
#include "tests/support/loopback.h"
#include "tests/support/temporary_directory.h"

namespace tutti {
namespace {

using testing::HasSubstr;

TEST(DoctorProbes, DialTellsWhetherSomebodyListens) {
  auto listener = std::make_unique<LoopbackListener>();
  const std::string address = listener->address();
  EXPECT_TRUE(dial(address, 5'000).ok());
  listener.reset();
  EXPECT_THAT(dial(address, 5'000).message(), HasSubstr(address + " is not reached: "));
  EXPECT_EQ(dial("nowhere", 5'000).code(), Code::invalid_argument);
}

TEST(DoctorProbes, PortsInUseAreTaken) {
  const LoopbackListener listener;
  EXPECT_THAT(try_bind(listener.address()).message(), HasSubstr("Address already in use"));
  EXPECT_TRUE(try_bind("127.0.0.1:0").ok());
  EXPECT_EQ(count_taken_ports({listener.port, listener.port}), 1);
}

TEST(DoctorProbes, ThePathToThisMachineIsItsLoopback) {
  const PathView path = look_at_path("a", "127.0.0.1:9", 5'000);
  EXPECT_EQ(path.interface, "lo");
  EXPECT_GT(path.interface_mtu, 1000);
  EXPECT_EQ(path.path_mtu, path.interface_mtu);
  EXPECT_TRUE(path.answered);
}

TEST(DoctorProbes, LimitsAreReadFromTheKernelsTable) {
  const std::string table =
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max open files            1024                 524288               files     \n"
      "Max locked memory         8388608              unlimited            bytes     \n";
  EXPECT_EQ(limit_in(table, "Max open files"), 524'288u);
  EXPECT_EQ(limit_in(table, "Max locked memory"), UINT64_MAX);
  EXPECT_EQ(limit_in(table, "Max core file size"), UINT64_MAX);
  EXPECT_EQ(look_at_limits(0).descriptors,
            look_at_limits(static_cast<uint32_t>(getpid())).descriptors);
}

TEST(DoctorProbes, FilesHaveOwnerAndMode) {
  const TemporaryDirectory path;
  chmod(path.c_str(), 0750);
  const FileView file = look_at_file(path);
  rmdir(path.c_str());
  EXPECT_TRUE(file.exists);
  EXPECT_EQ(file.uid, geteuid());
  EXPECT_EQ(file.mode, 0750u);
  EXPECT_FALSE(look_at_file(path).exists);
  EXPECT_EQ(user_of(static_cast<uint32_t>(getpid())), std::optional<uint32_t>(geteuid()));
}

TEST(DoctorProbes, ThisMachineRunsTutti) {
  EXPECT_TRUE(check_pidfd().ok());
  EXPECT_GT(available_memory_bytes(), 0u);
  EXPECT_NE(kernel_release(), "");
}

}  // namespace
}  // namespace tutti

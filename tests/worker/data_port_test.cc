// The ports on which workers listen for each other, over both transports.
#include "daemon/worker/data_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "daemon/base/loop.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::EndsWith;
using testing::HasSubstr;

// For this process alone, so that all its ports are free.
std::string own_address() {
  const int pid = getpid();
  return "127." + std::to_string(1 + (pid >> 16) % 200) + "." + std::to_string((pid >> 8) & 255) +
         "." + std::to_string(pid & 255);
}

class DataPort : public testing::TestWithParam<const char*> {
 protected:
  // A worker's transport that listens.
  Result<std::string> listen(const std::string& ports) {
    Settings settings;
    settings.host = "a";
    settings.data_address = address;
    settings.data_ports = ports;
    workers.push_back(make_network_transport(loop, GetParam(), {}));
    return listen_for_peers(*workers.back(), settings, {});
  }

  std::string address = own_address();
  Loop loop;
  std::vector<std::unique_ptr<Transport>> workers;
};

TEST_P(DataPort, IsAFreeOneOfTheRange) {
  const Result<std::string> first = listen("7610-7611");
  const Result<std::string> second = listen("7610-7611");
  ASSERT_TRUE(first.ok()) << first.status().message();
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_THAT(*first, AnyOf(EndsWith(address + ":7610"), EndsWith(address + ":7611")));
  EXPECT_THAT(*second, AnyOf(EndsWith(address + ":7610"), EndsWith(address + ":7611")));
  EXPECT_NE(*first, *second);
}

TEST_P(DataPort, IsMissingWhereAllAreTaken) {
  ASSERT_TRUE(listen("7610-7611").ok());
  ASSERT_TRUE(listen("7610-7611").ok());
  const Status status = listen("7610-7611").status();
  EXPECT_EQ(status.code(), Code::resource_exhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("all ports of data_ports = 7610-7611 are taken"),
                                      HasSubstr("host a"), HasSubstr("widen the range")));
  workers.erase(workers.begin());
  EXPECT_TRUE(listen("7610-7611").ok());
}

TEST_P(DataPort, IsTheKernelsWithoutARange) {
  EXPECT_TRUE(listen("").ok());
  EXPECT_TRUE(listen("").ok());
}

TEST_P(DataPort, DoesNotMatterWhereTheAddressIsAnothersMachine) {
  address = "203.0.113.1";
  const Status status = listen("7610-7611").status();
  EXPECT_EQ(status.code(), Code::unavailable);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("203.0.113.1:761"), HasSubstr("Cannot assign")));
}

INSTANTIATE_TEST_SUITE_P(Transports, DataPort, testing::Values("tcp", "grpc"));

}  // namespace
}  // namespace tutti

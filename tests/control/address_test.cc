// The addresses of settings: of what form, whose, and whether others reach them.
#include "daemon/control/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/control/net.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Nobody's (RFC 5737).
constexpr const char* kElsewhere = "203.0.113.1";
constexpr const char* kElsewherePort = "203.0.113.1:7601";

Status check(const std::string& listen, const std::string& data_address = "",
             const std::string& coordinator = "", const std::string& etcd = "") {
  return check_addresses(listen, data_address, coordinator, etcd);
}

// That will not do at any time.
std::string refusal(const std::string& listen, const std::string& data_address = "",
                    const std::string& coordinator = "", const std::string& etcd = "") {
  const Status status = check(listen, data_address, coordinator, etcd);
  EXPECT_EQ(status.code(), Code::invalid_argument) << listen;
  return status.message();
}

// That will not do as names and interfaces are now.
std::string refusal_here(const std::string& listen, const std::string& coordinator,
                         const std::string& etcd = "") {
  const Status status = check(listen, "", coordinator, etcd);
  EXPECT_EQ(status.code(), Code::failed_precondition) << listen;
  return status.message();
}

// That may do once the machine has its addresses and names.
std::string obstacle(const std::string& listen, const std::string& data_address = "",
                     const std::string& coordinator = "", const std::string& etcd = "") {
  const Status status = check(listen, data_address, coordinator, etcd);
  EXPECT_EQ(status.code(), Code::unavailable) << listen;
  return status.message();
}

TEST(Addresses, OfThisMachineAreTaken) {
  EXPECT_TRUE(check("127.0.0.1:7601").ok());
  EXPECT_TRUE(check("0.0.0.0:0").ok());
  EXPECT_TRUE(check("localhost:7601", "127.0.0.2", "127.0.0.1:7601").ok());
  EXPECT_TRUE(check("127.0.0.1:7601", "", "", "127.0.0.1:2379,localhost:2381").ok());
}

TEST(Addresses, OfAnotherFormAreRefusedByTheirSetting) {
  EXPECT_EQ(refusal("7601"), "setting listen = '7601': expected host:port, such as 10.0.0.1:7601");
  EXPECT_THAT(refusal("127.0.0.1:7601", "", "node1"), HasSubstr("setting coordinator = 'node1'"));
  EXPECT_THAT(
      refusal("127.0.0.1:7601", "10.0.0.1:7610"),
      HasSubstr("setting data_address = '10.0.0.1:7610': expected an address without a port"));
}

TEST(Addresses, OfOtherMachinesAreNotTakenYet) {
  EXPECT_THAT(obstacle(kElsewherePort), AllOf(HasSubstr("setting listen = '203.0.113.1:7601'"),
                                              HasSubstr("no address of this machine")));
  EXPECT_THAT(obstacle("127.0.0.1:7601", kElsewhere),
              AllOf(HasSubstr("setting data_address"), HasSubstr("no address of this machine")));
  EXPECT_THAT(obstacle("no.such.host.invalid:7601"), HasSubstr("the name has no address"));
}

TEST(Addresses, ThatPeersCannotDialAreRefused) {
  for (const char* wildcard : {"0.0.0.0", "[::]"})
    EXPECT_THAT(
        refusal("0.0.0.0:7601", wildcard),
        AllOf(HasSubstr("setting data_address"), HasSubstr("other hosts cannot dial this")));
  EXPECT_THAT(refusal_here("127.0.0.1:7601", kElsewherePort),
              AllOf(HasSubstr("setting listen = '127.0.0.1:7601'"),
                    HasSubstr("only this machine reaches that")));
}

// All agents would be elected at the same address.
TEST(Addresses, ThatPeersCannotDialAreRefusedWhereTheyElectACoordinator) {
  EXPECT_THAT(refusal_here("127.0.0.1:7601", "", "127.0.0.1:2379,203.0.113.1:2379"),
              AllOf(HasSubstr("setting listen = '127.0.0.1:7601'"),
                    HasSubstr("etcd = 203.0.113.1:2379 is another")));
}

TEST(Addresses, OfACoordinatorWhoseNameIsNotKnownYetAreTakenWhereOthersReachThisOne) {
  EXPECT_TRUE(check("0.0.0.0:7601", "", "no.such.host.invalid:7601").ok());
  EXPECT_THAT(obstacle("127.0.0.1:7601", "", "no.such.host.invalid:7601"),
              HasSubstr("coordinator = no.such.host.invalid:7601 has no address"));
}

TEST(Addresses, OfAWildcardAreThoseThatOthersDial) {
  for (const char* toward : {"", "203.0.113.1:7601", "no.such.host.invalid:7601"}) {
    const Address address = reachable({.host = "0.0.0.0", .port = 7601}, toward);
    EXPECT_NE(address.host, "0.0.0.0");
    EXPECT_EQ(address.port, 7601);
  }
  EXPECT_EQ(reachable({.host = "0.0.0.0", .port = 1}, "127.0.0.9:2").host, "127.0.0.1");
}

// A name has an address, or many, or none: that is no matter of the texts of settings.
TEST(Addresses, OfANameOfThisMachineAndOfOthersAreRefusedAsLongAsItIsThat) {
  const Names several([&](const std::string&) {
    std::vector<SocketAddress> both = *resolve("127.0.0.1:0");
    both.push_back(resolve(kElsewherePort)->front());
    return Result<std::vector<SocketAddress>>(both);
  });
  EXPECT_EQ(check_coordinator("head:7601", several).code(), Code::failed_precondition);
}

// Each look-up costs seconds where no resolver answers.
TEST(Addresses, OfAStartAreLookedUpOnceEach) {
  std::map<std::string, int> asked;
  const Names names([&](const std::string& address) {
    ++asked[address];
    const bool is_known = address == "here:0" || address == "head:0";
    return resolve(is_known ? "127.0.0.1:0" : address, false);
  });
  EXPECT_TRUE(check_addresses("here:7601", "here", "head:7601", "", names).ok());
  FakeAgent agent("a");
  EXPECT_TRUE(check_addresses("127.0.0.1:0", "here", "head:7601", "", names).ok());
  const auto served = serve_control({.listen = "127.0.0.1:0",
                                     .coordinator = "head:7601",
                                     .host = "a",
                                     .credentials = test_credentials()},
                                    agent, names);
  EXPECT_TRUE(served.ok()) << served.status().to_string();
  EXPECT_EQ(asked, (std::map<std::string, int>{{"127.0.0.1:0", 1}, {"head:0", 1}, {"here:0", 1}}));
}

TEST(Addresses, OfEveryNetworkAreKnownByTheirTextWhereTheyAreNumbers) {
  EXPECT_TRUE(is_wildcard_number("0.0.0.0"));
  EXPECT_TRUE(is_wildcard_number("::"));
  EXPECT_FALSE(is_wildcard_number("127.0.0.1"));
  EXPECT_FALSE(is_wildcard_number("localhost"));
}

}  // namespace
}  // namespace tutti

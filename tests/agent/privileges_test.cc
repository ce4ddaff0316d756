// What workers may do: as other users nothing beyond these users, as root little more.
#include <gmock/gmock.h>
#include <grp.h>

#include <array>

#include "tests/agent/harness.h"

namespace tutti {
namespace {

using testing::HasSubstr;

// CAP_DAC_OVERRIDE, CAP_IPC_LOCK, CAP_SYS_PTRACE.
constexpr uint64_t kUsedByRoot = 1 << 1 | 1 << 14 | 1 << 19;

// "CapBnd" and so on, of what /proc says of a process.
uint64_t capabilities(const std::string& status, const std::string& set) {
  const size_t at = status.find(set + ":\t");
  return at == std::string::npos ? ~uint64_t{0}
                                 : std::stoull(status.substr(at + set.size() + 2), nullptr, 16);
}

struct AgentPrivileges : AgentTest {
  // What /proc says of the worker of a job that this user starts.
  std::string status_of_worker(uint32_t user) {
    EXPECT_EQ(seteuid(user), 0);
    trainers.emplace_back(socket());
    EXPECT_EQ(seteuid(0), 0);
    trainers.back().greet(hello_of("demo"));
    const std::string pid = field(trainers.back().welcome().value_or(v1::Welcome()), "pid");
    workers.insert(std::stoi(pid));
    return text_of("/proc/" + pid + "/status");
  }
};

TEST_F(AgentPrivileges, OtherUsersWorkersHaveNoneAsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be two users";
  start();
  const std::string status = status_of_worker(kNobody);
  EXPECT_THAT(status, HasSubstr("Uid:\t65534\t65534\t65534\t65534\n"));
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
    EXPECT_EQ(capabilities(status, set), 0u) << set;
  EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1\n"));
}

// No user database was asked: it knows neither the user nor the groups.
TEST_F(AgentPrivileges, OtherUsersWorkersHaveTheGroupsOfTheirTrainerAsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be two users";
  start();
  std::array<gid_t, 64> before{};
  const int count = getgroups(int(before.size()), before.data());
  const std::array<gid_t, 2> groups = {471'100, 471'200};
  ASSERT_EQ(setgroups(groups.size(), groups.data()), 0);
  const std::string status = status_of_worker(4'711);
  ASSERT_EQ(setgroups(static_cast<size_t>(count), before.data()), 0);
  EXPECT_THAT(status, HasSubstr("Uid:\t4711\t4711\t4711\t4711\n"));
  EXPECT_THAT(status, HasSubstr("Groups:\t471100 471200 \n"));
}

TEST_F(AgentPrivileges, RootsWorkersKeepWhatTheyUseAsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to have any";
  const uint64_t used = capabilities(text_of("/proc/self/status"), "CapBnd") & kUsedByRoot;
  start();
  const std::string status = status_of_worker(0);
  for (const char* set : {"CapPrm", "CapEff", "CapBnd"})
    EXPECT_EQ(capabilities(status, set), used) << set;
  for (const char* set : {"CapInh", "CapAmb"}) EXPECT_EQ(capabilities(status, set), 0u) << set;
  EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1\n"));
}

}  // namespace
}  // namespace tutti

// A job belongs to the user who began it, on every host, over real processes.
#include <gtest/gtest.h>
#include <unistd.h>

#include "daemon/control/admin_client.h"
#include "tests/support/test_mesh.h"

namespace tutti {
namespace {

using namespace testing;

void become_nobody() {
  check(setresgid(kNobody, kNobody, kNobody) == 0, "another group");
  check(setresuid(kNobody, kNobody, kNobody) == 0, "another user");
}

// Lets other users reach the mesh's sockets.
void open_directories(const TestMesh& mesh) {
  namespace fs = std::filesystem;
  for (int host = 0; host < 2; ++host) {
    const fs::path home = fs::path(mesh.host(host).socket).parent_path();
    fs::permissions(home, fs::perms(0711));
    fs::permissions(home.parent_path(), fs::perms(0711));
  }
}

TEST(Owners, AnotherUserMayNotJoinThroughAnotherHostAsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be two users";
  const TestMesh mesh(2);
  open_directories(mesh);
  Trainer owner(RankContext{"job", mesh.host(0).socket, 0, 2}, [](const RankContext& context) {
    Group group = context.join();
    check_works(group);
  });
  // From then on the coordinator knows whose it is.
  while (!admin_set_strategy(mesh.host(0).address, "job", "ring", 5'000).ok()) sched_yield();
  Trainer stranger(RankContext{"job", mesh.host(1).socket, 1, 2}, [](const RankContext& context) {
    become_nobody();
    const Error error = failure_of([&] { (void)context.join(); });
    check(error.code == TUTTI_PERMISSION_DENIED, error.what());
    check_contains(error, "job \"job\" belongs to user 0, and user 65534 on host b may not join");
  });
  EXPECT_EQ(stranger.wait(), "");
  Trainer other(RankContext{"job", mesh.host(1).socket, 1, 2}, [](const RankContext& context) {
    Group group = context.join();
    check_works(group);
  });
  EXPECT_EQ(other.wait(), "");
  EXPECT_EQ(owner.wait(), "");
}

TEST(Owners, UsersRunJobsOfTheirOwnOverSeveralHostsAsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to be two users";
  const TestMesh mesh(2);
  open_directories(mesh);
  std::vector<Trainer> trainers;
  for (int rank = 0; rank < 2; ++rank)
    trainers.emplace_back(RankContext{"job", mesh.host(rank).socket, rank, 2},
                          [](const RankContext& context) {
                            become_nobody();
                            Group group = context.join();
                            for (int i = 0; i < 20; ++i) check_works(group);
                          });
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh.log_tails();
}

}  // namespace
}  // namespace tutti

// Agents that elect their coordinator through a real etcd of three members, with kills: of the
// coordinator, of etcd's leader, and of all of etcd for a while.
#include <gtest/gtest.h>
#include <poll.h>

#include "daemon/base/settings.h"
#include "daemon/control/admin_client.h"
#include "tests/process/board_fixture.h"
#include "tests/support/await.h"
#include "tests/support/etcd_cluster.h"

namespace tutti {
namespace {

using namespace testing;
using SteadyClock = std::chrono::steady_clock;

// How long etcd is away once nobody coordinates: longer than any of its members' calls, or what
// TUTTI_ETCD_OUTAGE_MS says.
int outage_ms() {
  const char* asked = std::getenv("TUTTI_ETCD_OUTAGE_MS");
  return asked == nullptr ? 5'000 : std::atoi(asked);
}

struct Etcd : ::testing::Test {
  void SetUp() override {
    if (!EtcdCluster::is_there()) GTEST_SKIP() << "needs etcd: tests/tools/get etcd-server";
    etcd.emplace(3);
    flags = {"--etcd=" + etcd->endpoints(), "--etcd-ttl-ms=" + std::to_string(ttl_ms),
             "--coordinator-grace-ms=3000"};
    mesh.emplace(LocalMeshOptions{.hosts = 3, .agent_flags = flags});
    ASSERT_TRUE(await([&] { return coordinator() >= 0; })) << mesh->log_tails();
  }
  // The host whose agent says that it coordinates; -1: none.
  int coordinator() const {
    for (int host = 0; host < 3; ++host) {
      const auto status = admin_status(mesh->host(host).address, true, 2'000);
      if (status.ok() && status->agents(0).coordinator()) return host;
    }
    return -1;
  }
  std::string etcd_state(int host) const {
    const auto status = admin_status(mesh->host(host).address, true, 2'000);
    return status.ok() ? status->agents(0).etcd_state() : status.status().message();
  }
  // A job that runs until the flag is set, with right values, in epoch 1; then forms epoch 2.
  std::vector<Trainer> start_job(const std::vector<int>& hosts) {
    std::vector<Trainer> trainers;
    const int ranks = static_cast<int>(hosts.size());
    for (int rank = 0; rank < ranks; ++rank)
      trainers.emplace_back(RankContext{"running", mesh->host(hosts[rank]).socket, rank, ranks},
                            [this](const RankContext& context) {
                              Group group = context.join();
                              write_line("ready");
                              std::vector<float> x(1, 0.0f);
                              while (x[0] == 0.0f) {
                                check_works(group);
                                x[0] = over.is_set() ? 1.0f : 0.0f;
                                group.all_reduce(std::span(x));
                              }
                              check(group.epoch() == 1, "epoch 1 to its end");
                              group.leave();
                              group = context.join();
                              check(group.epoch() == 2, "epoch 2 after it");
                              check_works(group);
                            });
    for (Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), "ready");
    return trainers;
  }
  // A short job on two hosts: how long its joins took.
  void join_now(const std::string& job, int first, int second, const std::string& what) {
    const auto begin = SteadyClock::now();
    std::vector<Trainer> trainers;
    for (const int host : {first, second})
      trainers.emplace_back(RankContext{job, mesh->host(host).socket, host == first ? 0 : 1, 2},
                            [](const RankContext& context) {
                              Group group = context.join();
                              check_works(group);
                            });
    EXPECT_EQ(TestMesh::wait(trainers), "") << mesh->log_tails();
    const auto took = std::chrono::duration_cast<Millis>(SteadyClock::now() - begin);
    std::printf("a join %s took %d ms\n", what.c_str(), static_cast<int>(took.count()));
  }

  // Until the coordinator has given up those that were not there, too.
  void outlast_the_grace() {
    const auto status = [&] {
      return admin_status(mesh->host(coordinator()).address, false, 2'000);
    };
    const auto begin = SteadyClock::now();
    await([&] { return SteadyClock::now() > begin + std::chrono::seconds(5) && status().ok(); });
  }

  int ttl_ms = 3'000;
  Flag over;
  std::vector<std::string> flags;
  std::optional<EtcdCluster> etcd;
  std::optional<TestMesh> mesh;
};

TEST_F(Etcd, AnotherAgentCoordinatesWhenTheCoordinatorIsKilled) {
  const int killed = coordinator();
  const int b = (killed + 1) % 3;
  const int c = (killed + 2) % 3;
  std::vector<Trainer> trainers = start_job({b, c});
  join_now("other", b, c, "with nothing amiss");
  kill(mesh->host(killed).agent, SIGKILL);
  join_now("other", b, c, "after the coordinator was killed");
  const int now = coordinator();
  EXPECT_TRUE(now == b || now == c) << now;
  over.set();
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh->log_tails();
}

// Its workers hear of the next coordinator once they have an agent again, after the grace.
TEST_F(Etcd, AJobOnTheKilledCoordinatorsOwnHostGoesOn) {
  const int killed = coordinator();
  std::vector<Trainer> trainers = start_job({killed});
  kill(mesh->host(killed).agent, SIGKILL);
  ASSERT_TRUE(await([&] { return coordinator() >= 0 && coordinator() != killed; }));
  outlast_the_grace();
  restart_agent(mesh->host(killed), flags);
  ASSERT_TRUE(await([&] {
    const auto status = admin_status(mesh->host(killed).address, true, 2'000);
    return status.ok() && status->agents(0).workers_size() == 1;
  }));
  outlast_the_grace();
  over.set();
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh->log_tails();
}

// It comes back when another was elected, and takes itself for the coordinator no more.
TEST_F(Etcd, ASuspendedCoordinatorIsDeposed) {
  const int suspended = coordinator();
  std::vector<Trainer> trainers = start_job({0, 1, 2});
  kill(mesh->host(suspended).agent, SIGSTOP);
  const int b = (suspended + 1) % 3;
  const int c = (suspended + 2) % 3;
  join_now("other", b, c, "after the coordinator was suspended");
  kill(mesh->host(suspended).agent, SIGCONT);
  // For another name: that rank 1 has left host c may not be known yet.
  join_now("third", suspended, b, "from the host of the deposed coordinator");
  EXPECT_TRUE(await([&] { return coordinator() == b || coordinator() == c; }));
  over.set();
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh->log_tails();
}

// etcd's own election takes 1 to 2 s, or a second round of that: more than a lease of 3 s has left
// after its last renewal. Settings' own lease outlives it.
struct EtcdWithTheLeaseOfTheSettings : Etcd {
  EtcdWithTheLeaseOfTheSettings() { ttl_ms = static_cast<int>(Settings().etcd_ttl_ms); }
};

TEST_F(EtcdWithTheLeaseOfTheSettings, JobsAndJoinsGoOnWhenEtcdsLeaderIsKilled) {
  std::vector<Trainer> trainers = start_job({0, 1, 2});
  const int before = coordinator();
  etcd->stop(etcd->leader());
  join_now("other", 1, 2, "after etcd's leader was killed");
  EXPECT_EQ(coordinator(), before);
  over.set();
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh->log_tails();
}

TEST_F(Etcd, RunningJobsGoOnAndJoinsWaitWithoutEtcd) {
  std::vector<Trainer> trainers = start_job({0, 1, 2});
  for (int member = 0; member < 3; ++member) etcd->signal(member, SIGSTOP);
  ASSERT_TRUE(await([&] { return coordinator() < 0; })) << "it knows that its lease may be over";
  EXPECT_TRUE(await([&] { return etcd_state(1).starts_with("unreachable for "); }));
  Trainer refused(RankContext{"other", mesh->host(1).socket, 0, 1}, [](const RankContext& context) {
    const Error error = failure_of([&] { (void)context.join(2'000); });
    check(error.code == TUTTI_UNAVAILABLE, error.what());
    check_contains(error, "etcd at 127.0.0.1:");
    check_contains(error, "has not answered for ");
  });
  EXPECT_EQ(refused.wait(), "") << mesh->log_tails();
  std::vector<Trainer> waiting;
  for (const int rank : {0, 1})
    waiting.emplace_back(RankContext{"patient", mesh->host(rank).socket, rank, 2},
                         [](const RankContext& context) {
                           write_line("joins");
                           Group group = context.join(120'000);
                           check_works(group);
                         });
  for (Trainer& one : waiting) EXPECT_EQ(one.read_line(), "joins");
  poll(nullptr, 0, outage_ms());
  for (int member = 0; member < 3; ++member) etcd->signal(member, SIGCONT);
  EXPECT_EQ(TestMesh::wait(waiting), "") << mesh->log_tails();
  join_now("other", 1, 2, "from when etcd came back");
  over.set();
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh->log_tails();
}

}  // namespace
}  // namespace tutti

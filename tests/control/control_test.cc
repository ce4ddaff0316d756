// Coordinator clients and a coordinator over real gRPC: joins, failures and reconnects.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/control/net.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

struct Mesh : ::testing::Test {
  // Ranks 0 and 1 on host a, 2 and 3 on host b, all in one epoch.
  void join_four() {
    for (uint32_t rank = 0; rank < 4; ++rank) (rank < 2 ? *a : *b).join(rank, 4);
    ASSERT_TRUE(await(loop, [&] { return a->rosters.size() == 1 && b->rosters.size() == 1; }));
  }

  // Turns the loop until `done`. Repeats joins that failed because a coordinator had ended.
  template <class Done>
  bool rejoin_until(uint32_t world_size, const std::vector<FakeWorkerClient*>& clients, Done done) {
    return await(loop, [&] {
      for (FakeWorkerClient* client : clients)
        for (const auto& [rank, why] : std::exchange(client->refused, {})) {
          EXPECT_EQ(why.code(), Code::unavailable) << why.to_string();
          client->join(rank, world_size);
        }
      return done();
    });
  }

  Loop loop;
  Node node{"a"};
  std::unique_ptr<FakeWorkerClient> a =
      std::make_unique<FakeWorkerClient>(loop, node.address(), "a");
  std::unique_ptr<FakeWorkerClient> b =
      std::make_unique<FakeWorkerClient>(loop, node.address(), "b");
};

TEST_F(Mesh, FourRanksOverTwoWorkersGetOneRoster) {
  join_four();
  const Roster& roster = a->rosters[0];
  EXPECT_EQ(roster, b->rosters[0]);
  EXPECT_EQ(roster.epoch, 1u);
  EXPECT_EQ(roster.secret.size(), 32u);
  const std::vector<RosterRank> expected = {
      {100, "a", "a:9"}, {101, "a", "a:9"}, {102, "b", "b:9"}, {103, "b", "b:9"}};
  EXPECT_EQ(roster.ranks, expected);
}

TEST_F(Mesh, NextEpochHasItsOwnSecret) {
  for (uint32_t epoch = 1; epoch <= 2; ++epoch) {
    a->join(0, 1);
    ASSERT_TRUE(await(loop, [&] { return a->rosters.size() == epoch; }));
    a->client->report_gone(epoch, 0, {});
  }
  EXPECT_EQ(a->rosters[1].epoch, 2u);
  EXPECT_NE(a->rosters[0].secret, a->rosters[1].secret);
}

TEST_F(Mesh, MissingRanksAreNamedWhenTimeIsUp) {
  a->join(0, 4, 200);
  b->join(3, 4, 60'000);
  ASSERT_TRUE(await(loop, [&] { return !a->refused.empty(); }));
  EXPECT_EQ(a->refused[0].first, 0u);
  EXPECT_EQ(a->refused[0].second.code(), Code::deadline_exceeded);
  EXPECT_THAT(a->refused[0].second.message(), HasSubstr("of 4 ha"));
  EXPECT_THAT(a->refused[0].second.message(), HasSubstr("2"));
  EXPECT_TRUE(b->refused.empty());
}

TEST_F(Mesh, TakenRankIsRefusedAndDifferingWorldSizesAreToBoth) {
  a->join(0, 4);
  ASSERT_TRUE(
      await(loop, [&] { return admin_set_strategy(node.address(), "demo", "ring", 5'000).ok(); }));
  b->join(0, 4);
  b->join(1, 3);
  ASSERT_TRUE(await(loop, [&] { return b->refused.size() == 2 && !a->refused.empty(); }));
  EXPECT_EQ(b->refused[0].second.code(), Code::already_exists);
  EXPECT_THAT(b->refused[0].second.message(), HasSubstr("(host a, pid 100)"));
  EXPECT_EQ(b->refused[1].second.code(), Code::failed_precondition);
  EXPECT_THAT(
      b->refused[1].second.message(),
      HasSubstr("it is 4 for rank 0 (host a, pid 100); it is 3 for rank 1 (host b, pid 101)"));
  EXPECT_EQ(a->refused, (std::vector{std::pair(0u, b->refused[1].second)}));
}

TEST_F(Mesh, RefusedJoinsAreInTheCoordinatorsReportAndUsersSeeTheirOwn) {
  const auto refusals = [&](const Caller& caller) {
    v1::AdminRequest request;
    request.mutable_status()->set_local_only(true);
    const v1::AdminAnswer answer = node.server->admin(request, caller);
    const auto& joins = answer.status().agents(0).refused_joins();
    return std::vector<v1::RefusedJoin>(joins.begin(), joins.end());
  };
  const Caller admin{.kind = Caller::Kind::admin};
  a->join(0, 4);
  ASSERT_TRUE(
      await(loop, [&] { return admin_set_strategy(node.address(), "demo", "ring", 5'000).ok(); }));
  EXPECT_TRUE(refusals(admin).empty());
  const v1::Pass of_other = pass_of("b", "demo", 2'000);
  b->join(1, 4, 60'000, &of_other);
  ASSERT_TRUE(await(loop, [&] { return b->refused.size() == 1; }));
  ASSERT_EQ(refusals(admin).size(), 1u);
  const v1::RefusedJoin refused = refusals(admin)[0];
  EXPECT_EQ(refused.job(), "demo");
  EXPECT_EQ(refused.rank(), 1u);
  EXPECT_EQ(refused.host(), "b");
  EXPECT_EQ(refused.owner().uid(), 2'000u);
  EXPECT_EQ(refused.status().message(), b->refused[0].second.message());
  EXPECT_EQ(refusals({.kind = Caller::Kind::user, .uid = 2'000}).size(), 1u);
  EXPECT_TRUE(refusals({.kind = Caller::Kind::user, .uid = 1'000}).empty());
  b->join(1, 4, 60'000, &of_other);
  ASSERT_TRUE(await(loop, [&] { return b->refused.size() == 2; }));
  EXPECT_EQ(refusals(admin).size(), 1u) << "the last of each rank";
  a->join(1, 4);
  a->join(1, 4);  // Answered when the first has been applied.
  ASSERT_TRUE(await(loop, [&] { return a->refused.size() == 1; }));
  EXPECT_EQ(refusals({.kind = Caller::Kind::user, .uid = 1'000}).size(), 1u);
}

TEST_F(Mesh, AWorkerWhosePassDoesNotCountIsRememberedByItsHost) {
  FakeWorkerClient stranger(loop, node.address(), "c");
  const v1::Pass forged = pass_of("c", "demo", 1'000, "another key");
  stranger.join(2, 4, 60'000, &forged);
  ASSERT_TRUE(await(loop, [&] { return stranger.refused.size() == 1; }));
  const auto reply = admin_status(node.address(), true, 5'000);
  ASSERT_TRUE(reply.ok());
  const v1::AgentReport& report = reply->agents(0);
  ASSERT_EQ(report.refused_joins_size(), 1);
  EXPECT_EQ(report.refused_joins(0).rank(), UINT32_MAX);
  EXPECT_EQ(report.refused_joins(0).host(), "c");
  EXPECT_THAT(report.refused_joins(0).status().message(), HasSubstr("did not sign"));
  ASSERT_EQ(report.refused_size(), 1);
  EXPECT_EQ(report.refused(0).door(), "mesh");
  EXPECT_EQ(report.refused(0).code(), "UNAUTHENTICATED");
}

TEST_F(Mesh, WorkerThatEndsAbortsTheEpochByName) {
  join_four();
  b.reset();
  ASSERT_TRUE(await(loop, [&] { return !a->aborted.empty(); }));
  EXPECT_EQ(a->aborted[0].first, 1u);
  EXPECT_EQ(a->aborted[0].second,
            unavailable("the worker of host b (ranks 2, 3) is gone", {-1, "b"}));
  a->join(0, 1);
  ASSERT_TRUE(await(loop, [&] { return a->rosters.size() == 2; }));
  EXPECT_EQ(a->rosters[1].epoch, 2u);
}

TEST_F(Mesh, DeadRankMakesRoomForTheNextEpoch) {
  join_four();
  b->client->report_gone(1, 3, unavailable("rank 3 (host b, pid 103) died", {3, "b"}));
  for (uint32_t rank : {2u, 3u}) b->join(rank, 4);
  // The coordinator has received all earlier messages of b.
  b->join(9, 4);
  ASSERT_TRUE(await(loop, [&] { return !b->refused.empty(); }));
  EXPECT_EQ(b->refused[0].first, 9u);
  for (uint32_t rank : {0u, 1u}) a->join(rank, 4);
  ASSERT_TRUE(await(loop, [&] { return a->rosters.size() == 2 && b->rosters.size() == 2; }));
  EXPECT_EQ(a->rosters[1].epoch, 2u);
  EXPECT_TRUE(a->aborted.empty() && b->aborted.empty());
}

TEST_F(Mesh, WithdrawnJoinMayBeMadeAgain) {
  a->join(0, 2);
  a->client->report_gone(0, 0, {});
  a->join(0, 2);
  a->join(1, 2);
  ASSERT_TRUE(await(loop, [&] { return a->rosters.size() == 1; }));
  EXPECT_TRUE(a->refused.empty());
}

TEST_F(Mesh, StrategyReachesTheJobsWorkers) {
  join_four();
  ASSERT_TRUE(admin_set_strategy(node.address(), "demo", "{\"Tree\":2}", 5'000).ok());
  ASSERT_TRUE(await(loop, [&] { return !a->strategies.empty() && !b->strategies.empty(); }));
  EXPECT_EQ(a->strategies[0], "tree:2");
  EXPECT_EQ(b->strategies[0], "tree:2");
}

TEST_F(Mesh, CoordinatorMayBeRestartedUnderARunningJob) {
  join_four();
  ASSERT_TRUE(admin_set_strategy(node.address(), "demo", "ring", 5'000).ok());
  ASSERT_TRUE(await(loop, [&] { return !a->strategies.empty() && !b->strategies.empty(); }));
  a->join(1, 4);  // Refused; by then all earlier messages of the stream have arrived.
  ASSERT_TRUE(await(loop, [&] { return !a->refused.empty(); }));
  const std::string address = node.address();
  node.server.reset();
  Node second("a", "", address);
  // Both have resumed once the new coordinator knows all four ranks as running.
  FakeWorkerClient c(loop, address, "c");
  for (uint32_t rank : {0u, 3u}) {
    ASSERT_TRUE(await(loop, [&] {
      c.refused.clear();
      c.join(rank, 4, 1'000);
      await(loop, [&] { return !c.refused.empty(); });
      return !c.refused.empty() && c.refused[0].second.code() == Code::already_exists;
    }));
  }
  EXPECT_THAT(c.refused[0].second.message(), HasSubstr("runs in epoch 1 (host b, pid 103)"));
  EXPECT_TRUE(a->aborted.empty() && b->aborted.empty());
  b->client->report_gone(1, 3, {});
  b->join(3, 4);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    FakeWorkerClient& client = rank < 2 ? *a : *b;
    client.client->report_gone(1, rank, {});
    client.join(rank, 4);
  }
  ASSERT_TRUE(await(loop, [&] { return b->rosters.size() == 2; }));
  EXPECT_EQ(b->rosters[1].epoch, 2u);
  EXPECT_EQ(b->rosters[1].strategy, "ring");
}

// A worker reports its newest epoch first.
TEST_F(Mesh, RankThatDiedWhileTheCoordinatorWasAwayMayJoinTheNextEpoch) {
  join_four();
  const std::string address = node.address();
  node.server.reset();
  a->client->report_gone(1, 1, unavailable("rank 1 (host a, pid 101) died", {1, "a"}));
  Node second("a", "", address);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    FakeWorkerClient& client = rank < 2 ? *a : *b;
    if (rank != 1) client.client->report_gone(1, rank, {});
    client.join(rank, 4);
  }
  const auto both = [&] { return a->rosters.size() == 2 && b->rosters.size() == 2; };
  ASSERT_TRUE(rejoin_until(4, {a.get(), b.get()}, both));
  EXPECT_EQ(a->rosters[1].epoch, 2u);
  EXPECT_EQ(a->rosters[1], b->rosters[1]);
  EXPECT_TRUE(a->aborted.empty() && b->aborted.empty());
}

// The worker cannot know whether the coordinator has applied what it sent.
TEST_F(Mesh, DeathThatAnEndingCoordinatorMayHaveHeardIsReportedToTheNext) {
  join_four();
  const std::string address = node.address();
  a->client->report_gone(1, 1, unavailable("rank 1 (host a, pid 101) died", {1, "a"}));
  node.server.reset();
  Node second("a", "", address);
  FakeWorkerClient c(loop, address, "c");
  for (uint32_t rank = 0; rank < 2; ++rank) a->join(rank, 3);
  c.join(2, 3);  // In place of b's ranks, which are still in the old epoch.
  const auto both = [&] { return a->rosters.size() == 2 && c.rosters.size() == 1; };
  ASSERT_TRUE(rejoin_until(3, {a.get()}, both));
  EXPECT_EQ(a->rosters[1].epoch, 2u);
}

TEST_F(Mesh, WorkerThatForgotNothingKeepsAForgetfulOneFromAnOldNumber) {
  join_four();
  const std::string address = node.address();
  for (uint32_t rank = 0; rank < 4; ++rank) (rank < 2 ? *a : *b).client->report_gone(1, rank, {});
  node.server.reset();
  Node second("a", "", address);
  FakeWorkerClient c(loop, address, "c");
  a->join(0, 2);
  c.join(1, 2);
  const auto both = [&] { return a->rosters.size() == 2 && c.rosters.size() == 1; };
  ASSERT_TRUE(rejoin_until(2, {a.get()}, both));
  EXPECT_EQ(c.rosters[0].epoch, 2u);
}

TEST_F(Mesh, WaitingJoinsAreSentAgainWhenTheCoordinatorIsBack) {
  a->join(0, 2);
  ASSERT_TRUE(
      await(loop, [&] { return admin_set_strategy(node.address(), "demo", "ring", 5'000).ok(); }));
  const std::string address = node.address();
  node.server.reset();
  Node second("a", "", address);
  b->join(1, 2);
  ASSERT_TRUE(await(loop, [&] { return a->rosters.size() == 1 && b->rosters.size() == 1; }));
  EXPECT_TRUE(a->refused.empty());
}

TEST_F(Mesh, WaitingJoinsFailInTimeWhenTheCoordinatorIsLost) {
  a->join(0, 2, 2'000);
  ASSERT_TRUE(
      await(loop, [&] { return admin_set_strategy(node.address(), "demo", "ring", 5'000).ok(); }));
  node.server.reset();
  ASSERT_TRUE(await(loop, [&] { return !a->refused.empty(); }));
  EXPECT_EQ(a->refused[0].second.code(), Code::unavailable);
  EXPECT_THAT(a->refused[0].second.message(), HasSubstr("cannot reach the coordinator"));
}

TEST_F(Mesh, JoinWaitsForACoordinatorThatStartsLater) {
  const std::string address = node.address();
  node.server.reset();
  FakeWorkerClient late(loop, address, "late");
  late.join(0, 1);
  ASSERT_TRUE(await(loop, [&] { return true; }));
  Node second("a", "", address);
  ASSERT_TRUE(await(loop, [&] { return late.rosters.size() == 1; }));
}

TEST_F(Mesh, JoinWithoutACoordinatorFailsInTimeAndSaysHowToStartOne) {
  node.server.reset();
  FakeWorkerClient lone(loop, "127.0.0.1:1", "lone");
  lone.join(0, 1, 300);
  ASSERT_TRUE(await(loop, [&] { return !lone.refused.empty(); }));
  EXPECT_EQ(lone.refused[0].second.code(), Code::unavailable);
  EXPECT_THAT(lone.refused[0].second.message(), HasSubstr("tuttid --listen 127.0.0.1:1"));
}

// The coordinator takes no long message at once.
TEST_F(Mesh, AResumeOfManyRanksArrives) {
  constexpr uint32_t kRanks = 1'000;
  for (uint32_t rank = 0; rank < kRanks; ++rank) a->join(rank, kRanks);
  ASSERT_TRUE(await(loop, [&] { return a->rosters.size() == 1; }));
  const std::string address = node.address();
  node.server.reset();
  Node second("a", "", address);
  ASSERT_TRUE(await(loop, [&] { return admin_set_strategy(address, "demo", "ring", 5'000).ok(); }));
  EXPECT_TRUE(await(loop, [&] { return !a->strategies.empty(); }))
      << a->aborted.size() << " aborted, " << a->refused.size() << " refused";
  EXPECT_TRUE(a->aborted.empty());
}

TEST_F(Mesh, AWorkerWithoutAPassOfAnAgentIsUnauthenticated) {
  FakeWorkerClient guest(loop, node.address(), "guest");
  const v1::Pass forged = pass_of("guest", "demo", 1'000, "another key");
  guest.join(0, 1, 60'000, &forged);
  ASSERT_TRUE(await(loop, [&] { return !guest.refused.empty(); }));
  EXPECT_EQ(guest.refused[0].second.code(), Code::unauthenticated);
  EXPECT_THAT(guest.refused[0].second.message(), HasSubstr("host guest did not sign"));
  guest.join(0, 1, 60'000);
  ASSERT_TRUE(await(loop, [&] { return guest.rosters.size() == 1; }));
}

}  // namespace
}  // namespace tutti

// Agents that are killed, restarted or stopped while jobs run and trainers join: running jobs go
// on, and every join is answered in time.
#include <gtest/gtest.h>
#include <poll.h>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/support/test_mesh.h"

namespace tutti {
namespace {

using namespace testing;

using SteadyClock = std::chrono::steady_clock;

constexpr int kJoinMs = 2'000;
// Half a second is promised; the machine may be busy.
constexpr std::chrono::milliseconds kLateMax{20'000};

// The join fails, but within its timeout.
Error refused_in_time(const RankContext& context, int timeout_ms = kJoinMs) {
  const auto begin = SteadyClock::now();
  Error error = failure_of([&] { (void)context.join(timeout_ms); });
  check(SteadyClock::now() - begin < std::chrono::milliseconds(timeout_ms) + kLateMax,
        "in time: " + std::string(error.what()));
  return error;
}

// Without an agent or a coordinator no join succeeds.
bool may_try_again(const Error& error, SteadyClock::time_point begin) {
  poll(nullptr, 0, 20);
  return error.code == TUTTI_UNAVAILABLE && SteadyClock::now() - begin < std::chrono::seconds(60);
}

Group join_once_served(const RankContext& context) {
  for (const auto begin = SteadyClock::now();;) {
    try {
      return context.join(20'000);
    } catch (const Error& error) {
      if (!may_try_again(error, begin)) throw;
    }
  }
}

Error refused_once_served(const RankContext& context) {
  const auto begin = SteadyClock::now();
  Error error = refused_in_time(context);
  while (may_try_again(error, begin)) error = refused_in_time(context);
  return error;
}

void join_and_work(const RankContext& context) {
  Group group = join_once_served(context);
  check_works(group);
}

class RestartMesh : public ::testing::Test {
 protected:
  explicit RestartMesh(int hosts = 2) : mesh_(hosts) {}

  void start_agent(int index) const {
    restart_agent(mesh_.host(index), {"--coordinator=" + mesh_.host(0).control});
  }

  TestMesh mesh_;
};

struct RestartLoneHost : RestartMesh {
  RestartLoneHost() : RestartMesh(1) {}
};

// Runs operations until a rank dies, then joins the next epoch.
void outlive_a_rank(const RankContext& context) {
  Group group = context.join();
  check_works(group);
  write_line("ready");
  if (context.rank == context.world_size - 1) pause();
  const Error error = failure_of([&] {
    for (;;) check_works(group);
  });
  check(error.code == TUTTI_UNAVAILABLE && error.rank == context.world_size - 1, error.what());
  group = join_once_served(context);
  check(group.epoch() == 2, "epoch " + std::to_string(group.epoch()));
  check_works(group);
}

void lose_a_rank_and_the_coordinator(const TestMesh& mesh, std::vector<Trainer>& trainers) {
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  kill(mesh.host(0).agent, SIGKILL);
  trainers.back().kill(SIGKILL);
  EXPECT_EQ(trainers.back().wait(), "killed by signal 9");
  trainers.pop_back();
}

TEST_F(RestartLoneHost, JobWhoseRankDiedMeanwhileFormsItsNextEpoch) {
  std::vector<Trainer> trainers = mesh_.start("job", {3}, outlive_a_rank);
  lose_a_rank_and_the_coordinator(mesh_, trainers);
  start_agent(0);
  trainers.emplace_back(RankContext{"job", mesh_.host(0).socket, 2, 3},
                        [](const RankContext& context) {
                          Group group = join_once_served(context);
                          check(group.epoch() == 2, "epoch " + std::to_string(group.epoch()));
                          check_works(group);
                        });
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.log_tails();
}

TEST_F(RestartLoneHost, WhoOutlivesARankThatNeverComesBackLearnsWhoIsMissing) {
  std::vector<Trainer> trainers = mesh_.start("job", {2}, [](const RankContext& context) {
    Group group = context.join();
    check_works(group);
    write_line("ready");
    if (context.rank == 1) pause();
    (void)failure_of([&] {
      for (;;) check_works(group);
    });
    write_line("failed");
    pause();
  });
  lose_a_rank_and_the_coordinator(mesh_, trainers);
  ASSERT_EQ(trainers[0].read_line(), "failed");
  trainers[0].kill(SIGKILL);
  EXPECT_EQ(trainers[0].wait(), "killed by signal 9");
  start_agent(0);
  Trainer again(RankContext{"job", mesh_.host(0).socket, 0, 2}, [](const RankContext& context) {
    const Error error = refused_once_served(context);
    check(error.code == TUTTI_DEADLINE_EXCEEDED, error.what());
    check_contains(error, "rank 1 of 2 has not joined");
    check(refused_in_time(context).code == TUTTI_DEADLINE_EXCEEDED, "again");
  });
  EXPECT_EQ(again.wait(), "") << mesh_.log_tails();
}

TEST_F(RestartMesh, JobOnTwoHostsWhoseRankDiedMeanwhileFormsItsNextEpoch) {
  std::vector<Trainer> trainers = mesh_.start("job", {2, 2}, outlive_a_rank);
  lose_a_rank_and_the_coordinator(mesh_, trainers);
  start_agent(0);
  trainers.emplace_back(RankContext{"job", mesh_.host(1).socket, 3, 4}, join_and_work);
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.log_tails();
}

TEST_F(RestartLoneHost, TheNextAgentHasTheFlightRecorderOfARunningJob) {
  const Gate gate;
  std::vector<Trainer> trainers = mesh_.start("job", {2}, [&](const RankContext& context) {
    Group group = context.join();
    check_works(group);
    write_line("ready");
    gate.wait();
    check_works(group);
    write_line("ready");
    gate.wait();
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  kill(mesh_.host(0).agent, SIGKILL);
  start_agent(0);
  gate.open_for(trainers.size());
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  const auto begin = SteadyClock::now();
  Result<v1::TraceReply> trace = unavailable("not asked");
  while ((!trace.ok() || trace->hosts_size() == 0) &&
         SteadyClock::now() - begin < std::chrono::seconds(60))
    trace = admin_trace(mesh_.host(0).address, "job", 0, 5'000);
  ASSERT_TRUE(trace.ok()) << trace.status().to_string();
  ASSERT_EQ(trace->hosts_size(), 1);
  for (const v1::RankTrace& rank : trace->hosts(0).ranks()) EXPECT_EQ(rank.operations_size(), 2);
  gate.open_for(trainers.size());
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.log_tails();
}

// The workers, too, are gone, and with them all that the state file does not tell.
TEST_F(RestartLoneHost, EpochNumbersGoOnAfterARestartThatNoWorkerOutlives) {
  const auto in_epoch = [](uint32_t epoch) {
    return [epoch](const RankContext& context) {
      Group group = join_once_served(context);
      check(group.epoch() == epoch, "epoch " + std::to_string(group.epoch()));
      check_works(group);
    };
  };
  ASSERT_EQ(mesh_.run("job", {2}, in_epoch(1)), "");
  const auto status = admin_status(mesh_.host(0).address, true, 5'000);
  ASSERT_TRUE(status.ok() && status->agents(0).workers_size() == 1);
  kill(mesh_.host(0).agent, SIGKILL);
  kill(static_cast<pid_t>(status->agents(0).workers(0).pid()), SIGKILL);
  start_agent(0);
  EXPECT_EQ(mesh_.run("job", {2}, in_epoch(2)), "");
}

// ---- Joins while an agent is stopped, or dies ----

TEST_F(RestartMesh, JoinAtAStoppedAgentFailsInTimeAndNamesIt) {
  const pid_t agent = mesh_.host(1).agent;
  kill(agent, SIGSTOP);
  Trainer trainer(
      RankContext{"job", mesh_.host(1).socket, 1, 2}, [agent](const RankContext& context) {
        const Error error = refused_in_time(context);
        check(error.code == TUTTI_DEADLINE_EXCEEDED, error.what());
        check_contains(error, "(pid " + std::to_string(agent) + ") did not answer rank 1");
      });
  EXPECT_EQ(trainer.wait(), "");
  kill(agent, SIGCONT);
  EXPECT_EQ(mesh_.run("job", {1, 1}, join_and_work), "");
}

// The joins are under way when it stops; the worker of the other host answers instead.
TEST_F(RestartMesh, JoinsAtAStoppedCoordinatorFailInTimeAndNameIt) {
  const LocalMesh::Host& coordinator = mesh_.host(0);
  ASSERT_EQ(mesh_.run("job", {1, 1}, join_and_work), "");  // Its workers stay for a while.
  kill(coordinator.agent, SIGSTOP);
  Trainer trainer(RankContext{"job", mesh_.host(1).socket, 1, 2}, [&](const RankContext& context) {
    const Error error = refused_in_time(context, 500);
    check(error.code == TUTTI_DEADLINE_EXCEEDED || error.code == TUTTI_UNAVAILABLE, error.what());
    check_contains(error, coordinator.control);
  });
  EXPECT_EQ(trainer.wait(), "");
  kill(coordinator.agent, SIGCONT);
  EXPECT_EQ(mesh_.run("job", {1, 1}, join_and_work), "");
}

TEST_F(RestartMesh, JoinsUnderWayWhenAnAgentIsKilledEndInTime) {
  const auto wait_in_vain = [](const RankContext& context) {  // There is no rank 2.
    write_line("joins");
    const Error error = refused_in_time(context, 4'000);
    if (error.code == TUTTI_DEADLINE_EXCEEDED)
      check_contains(error, "of 3 ha");
    else
      check(error.code == TUTTI_UNAVAILABLE, error.what());
  };
  for (const int killed : {1, 0}) {
    std::vector<Trainer> trainers;
    for (const int rank : {0, 1})
      trainers.emplace_back(RankContext{"job", mesh_.host(rank).socket, rank, 3}, wait_in_vain);
    for (const Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "joins");
    kill(mesh_.host(killed).agent, SIGKILL);
    start_agent(killed);
    EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.log_tails();
    EXPECT_EQ(mesh_.run("job", {1, 1}, join_and_work), "");
  }
}

}  // namespace
}  // namespace tutti

// A coordinator that is suspended for longer than streams live and comes back: jobs go on, unless
// a worker died meanwhile. And one that is killed: its successor knows epochs and owners.
#include <gtest/gtest.h>
#include <poll.h>

#include <fstream>

#include "daemon/control/admin_client.h"
#include "tests/process/board_fixture.h"
#include "tests/support/await.h"
#include "tests/support/proc_counters.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_directory.h"

namespace tutti {
namespace {

using namespace testing;

// Pings every 1.5 s, answered within 3 s: then a stream is over. A moment more for workers, whose
// pings are at other times than those of their agent.
constexpr std::chrono::milliseconds kAllStreamsBreak{2'000};

struct Suspension : ::testing::Test {
  bool log_says(int host, const std::string& text) const {
    return text_of(mesh.host(host).log).find(text) != std::string::npos;
  }
  void suspend_coordinator() const {
    kill(mesh.host(0).agent, SIGSTOP);
    ASSERT_TRUE(await([&] { return log_says(1, "cannot reach the coordinator"); }));
    poll(nullptr, 0, kAllStreamsBreak.count());
  }
  // Until the flag is set, with right values.
  void work(Group& group) const {
    std::vector<float> x(1, 0.0f);
    while (x[0] == 0.0f) {
      check_works(group);
      x[0] = over.is_set() ? 1.0f : 0.0f;
      group.all_reduce(std::span(x));
    }
  }

  Flag over;
  TestMesh mesh{LocalMeshOptions{.hosts = 2, .agent_flags = {"--coordinator-grace-ms=3000"}}};
};

TEST_F(Suspension, RunningJobGoesOnWhenTheCoordinatorComesBack) {
  std::vector<Trainer> trainers = mesh.start("job", {1, 1}, [this](const RankContext& context) {
    Group group = context.join();
    write_line("ready");
    work(group);
    check(group.epoch() == 1, "epoch " + std::to_string(group.epoch()));
    group.leave();
    group = context.join();
    check(group.epoch() == 2, "epoch " + std::to_string(group.epoch()));
    check_works(group);
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  suspend_coordinator();
  const auto status = admin_status(mesh.host(1).address, true, 5'000);
  ASSERT_TRUE(status.ok());
  EXPECT_TRUE(status->agents(0).coordinator_state().starts_with("unreachable for "))
      << status->agents(0).coordinator_state();
  kill(mesh.host(0).agent, SIGCONT);
  EXPECT_TRUE(await([&] { return log_says(1, "answers again, after"); })) << mesh.log_tails();
  poll(nullptr, 0, 4'000);  // Longer than workers are waited for.
  over.set();
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh.log_tails();
}

TEST_F(Suspension, WorkerThatDiedMeanwhileEndsItsEpoch) {
  std::vector<Trainer> trainers = mesh.start("job", {1, 1}, [](const RankContext& context) {
    Group group = context.join();
    write_line("ready");
    const Error error = failure_of([&] {
      for (;;) check_works(group);
    });
    check(error.code == TUTTI_UNAVAILABLE && error.host == "b", error.what());
    group = context.join();
    check(group.epoch() == 2, "epoch " + std::to_string(group.epoch()));
    check_works(group);
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  const auto worker = static_cast<pid_t>(worker_report(mesh, 1, "job").pid());
  ASSERT_GT(worker, 0);
  suspend_coordinator();
  kill(worker, SIGKILL);
  kill(mesh.host(0).agent, SIGCONT);
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh.log_tails();
}

// No data is on the link, and the operation has a minute left.
TEST(Silence, AWorkerThatStopsIsLostAfterSilenceMs) {
  const TestMesh mesh{LocalMeshOptions{.hosts = 2, .agent_flags = {"--silence-ms=2000"}}};
  const Gate stopped, over;
  std::vector<Trainer> trainers = mesh.start("job", {1, 1}, [&](const RankContext& context) {
    Group group = context.join();
    check_works(group);
    write_line("ready");
    stopped.wait();
    if (context.rank == 1) return over.wait();
    const Error error =
        failure_of([&] { all_reduce_of(group, 10, {.timeout = std::chrono::minutes(1)}); });
    check(error.code == TUTTI_UNAVAILABLE && error.host == "b", error.what());
    check_contains(error, "has not answered for more than 1750 ms");
    write_line("lost");
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  const auto worker = static_cast<pid_t>(worker_report(mesh, 1, "job").pid());
  ASSERT_GT(worker, 0);
  kill(worker, SIGSTOP);
  stopped.open_for(2);
  EXPECT_EQ(trainers[0].read_line(), "lost");
  kill(worker, SIGCONT);
  over.open_for(1);
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh.log_tails();
}

// The link's own connection lives on, and so do its pings.
TEST(Silence, ADataStreamOfWhichNothingArrivesIsLostAfterSilenceMsAsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root: network namespaces";
  if (run_shell("nft -v && nsenter -V && ss -V").code != 0)
    GTEST_SKIP() << "needs nft, nsenter and ss";
  const TestMesh mesh(
      LocalMeshOptions{.hosts = 2, .netns = true, .agent_flags = {"--silence-ms=2000"}});
  std::vector<Trainer> trainers = mesh.start("job", {1, 1}, [](const RankContext& context) {
    Group group = context.join();
    const Options options{.timeout = std::chrono::minutes(1)};
    for (int i = 0; i < 4; ++i) all_reduce_of(group, 16 << 20, options);
    write_line("ready");
    const Error error = failure_of([&] {
      for (int i = 0; i < 1000; ++i) all_reduce_of(group, 16 << 20, options);
    });
    check(error.code == TUTTI_UNAVAILABLE, error.what());
    const auto says = [&](const std::string& what) {
      return std::string(error.what()).find(what + " for more than 1750 ms (silence_ms = 2000)") !=
             std::string::npos;
    };
    const bool noticed = says("has not answered");
    check(noticed || says("is lost: what it sent got no answer"), error.what());
    write_line(noticed ? "noticed" : "heard of it");
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  const std::string enter = "nsenter --net=/proc/" + std::to_string(getpid()) + "/fd/" +
                            std::to_string(mesh.host(0).netns) + " ";
  // By a data stream more has come than by any other connection.
  const ShellOutcome ports =
      run_shell(enter +
                "ss -tnHiO state established | sed -nE 's/^[0-9]+ +[0-9]+ +[^ ]+:([0-9]+) "
                "+[^ ]+:([0-9]+) .*bytes_received:([0-9]+).*/\\3 \\1 \\2/p' | sort -n | tail -1");
  long bytes = 0;
  int from = 0, to = 0;
  ASSERT_EQ(sscanf(ports.out.c_str(), "%ld %d %d", &bytes, &from, &to), 3) << ports.out;
  const ShellOutcome dropped =
      run_shell(enter +
                "nft \"add table inet cut; add chain inet cut in { type filter hook input "
                "priority 0; }; add rule inet cut in tcp dport " +
                std::to_string(from) + " tcp sport " + std::to_string(to) + " drop\"");
  ASSERT_EQ(dropped.code, 0) << dropped.out;
  // Either host may be the first, and says goodbye to the other.
  std::vector<std::string> how;
  for (Trainer& trainer : trainers) how.push_back(trainer.read_line());
  EXPECT_NE(std::ranges::find(how, "noticed"), how.end());
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh.log_tails();
}

}  // namespace
}  // namespace tutti

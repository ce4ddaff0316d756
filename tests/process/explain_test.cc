// `tutti explain` beside real jobs: each trouble is made, and named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/support/await.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_mesh.h"

namespace tutti::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr int kLateMs = 200;
constexpr Millis kLookedAt{8'000};
constexpr Millis kLead{1'000};

ShellOutcome explain(const TestMesh& mesh, const std::string& job = "job") {
  return run_shell("exec '" + (program_directory() / "tutti").string() + "' explain --address '" +
                   mesh.host(0).address + "' " + job);
}

// Asks until the first line matches.
ShellOutcome explain_until(const TestMesh& mesh, const std::string& sentence) {
  ShellOutcome outcome;
  const bool came = await([&] {
    outcome = explain(mesh);
    return ::testing::Value(outcome.out, ContainsRegex("^" + sentence));
  });
  EXPECT_TRUE(came) << sentence << "\n" << outcome.out;
  return outcome;
}

// What a rank does after it has joined; then it waits until the test is over.
using Body = std::function<void(Group&)>;

class ExplainProcess : public ::testing::Test {
 protected:
  // Starts these ranks of a job of four, two a host.
  void start(const std::vector<int>& ranks, const Body& part) {
    for (const int rank : ranks)
      trainers_.emplace_back(RankContext{"job", mesh_.host(rank / 2).socket, rank, 4},
                             [this, part](const RankContext& context) {
                               Group group = context.join();
                               part(group);
                               write_line("done");
                               end_.wait();
                             });
  }
  void await_done(const std::vector<int>& trainers) {
    for (const int trainer : trainers) EXPECT_EQ(trainers_[trainer].read_line(), "done");
  }

  TestMesh mesh_{LocalMeshOptions{.hosts = 2, .agent_flags = {"--silence-ms=100000"}}};
  Gate end_;
  Gate next_;
  std::vector<Trainer> trainers_;  // Ended, by a signal, before the mesh.
};

TEST_F(ExplainProcess, NoSuchJob) {
  const ShellOutcome seen = explain(mesh_, "other");
  EXPECT_EQ(seen.out, "no job other is known: see tutti status\n");
  EXPECT_EQ(seen.code, 2);
}

TEST_F(ExplainProcess, ARankThatHasNotJoined) {
  start({0, 1, 3}, [](Group&) {});
  const ShellOutcome seen =
      explain_until(mesh_, "rank 2 of 4 has not joined; the others wait for [0-9]+ m?s\n");
  EXPECT_THAT(seen.out, HasSubstr("  host a: ranks 0, 1 joined"));
  EXPECT_THAT(seen.out, HasSubstr("  host b: rank 3 joined"));
  EXPECT_EQ(seen.code, 1);
}

TEST_F(ExplainProcess, ARankWhoseHostTheCoordinatorRefuses) {
  const auto home = std::filesystem::path(mesh_.host(1).socket).parent_path();
  const std::string wrong = home / "wrong";
  std::ofstream(wrong) << "another-token role=agent\n";
  std::filesystem::permissions(wrong, std::filesystem::perms(0600));
  kill(mesh_.host(1).agent, SIGKILL);
  restart_agent(mesh_.host(1), {"--coordinator=" + mesh_.host(0).control, "--token-file=" + wrong});
  start({0, 1}, [](Group&) {});
  Trainer refused({"job", mesh_.host(1).socket, 2, 4}, [](const RankContext& context) {
    const auto is_refused = [&] {
      const Error error = failure_of([&] { context.join(); });
      return std::string(error.what()).find("did not sign") != std::string::npos;
    };
    check(await(is_refused), "the join is refused");
  });
  EXPECT_EQ(refused.wait(), "");
  const ShellOutcome seen = explain_until(
      mesh_,
      "ranks 2, 3 of 4 have not joined; the others wait for [0-9]+ m?s; the coordinator refused "
      "host b [0-9]+ m?s ago: .*did not sign");
  EXPECT_EQ(seen.code, 1);
}

TEST_F(ExplainProcess, AJobThatOnlyComputesIsIdle) {
  start({0, 1, 2, 3}, check_works);
  await_done({0, 1, 2, 3});
  const ShellOutcome seen =
      explain_until(mesh_, "all 4 ranks have joined, and none waits: the job is idle\n");
  EXPECT_THAT(seen.out, ContainsRegex("the last operation was [0-9]+ s ago"));
  EXPECT_EQ(seen.code, 0);
}

TEST_F(ExplainProcess, AJobThatRuns) {
  start({0, 1, 2, 3}, [](Group& group) {
    while (true) group.barrier();
  });
  const ShellOutcome seen =
      explain_until(mesh_, "all 4 ranks have joined and run [1-9][0-9.]* operations a second\n");
  EXPECT_EQ(seen.code, 0);
}

TEST_F(ExplainProcess, AHostWhoseAgentIsLostIsEvidence) {
  start({0, 1, 2, 3}, [](Group& group) {
    check_works(group);
    write_line("runs");
    while (true) group.barrier();
  });
  for (const Trainer& trainer : trainers_) ASSERT_EQ(trainer.read_line(), "runs");
  kill(mesh_.host(1).agent, SIGKILL);
  const std::string lost =
      "host b \\(.*\\) was lost [0-9]+ s ago: its agent ended or cannot be reached";
  ShellOutcome seen;
  EXPECT_TRUE(await([&] {
    seen = explain(mesh_);
    return ::testing::Value(seen.out, ContainsRegex(lost));
  })) << seen.out;
  const auto status = admin_status(mesh_.host(0).address, false, 10'000);
  ASSERT_TRUE(status.ok() && status->agents_size() == 2);
  EXPECT_TRUE(status->agents(1).lost());
  EXPECT_EQ(status->agents(1).workers(0).ranks_size(), 2) << "they run on";
  restart_agent(mesh_.host(1), {"--coordinator=" + mesh_.host(0).control});
  EXPECT_TRUE(await([&] {
    seen = explain(mesh_);
    return !::testing::Value(seen.out, ContainsRegex(lost));
  })) << seen.out;
  EXPECT_THAT(text_of(mesh_.host(0).log),
              ContainsRegex("host b .* is lost: its agent ended or cannot be reached"));
  EXPECT_THAT(text_of(mesh_.host(0).log), ContainsRegex("host b .* is back, after [0-9]+ s"));
}

TEST_F(ExplainProcess, AStoppedRankThatOthersWaitFor) {
  start({0, 1, 2, 3}, [this](Group& group) {
    check_works(group);
    write_line("ready");
    if (group.rank() == 1) next_.wait();
    std::vector<float> x(3 * 100);
    std::vector<Work> works;
    for (size_t i = 0; i < 3; ++i)
      works.push_back(group.all_reduce_async(std::span(x).subspan(100 * i, 100)));
    for (Work& work : works) work.wait();
  });
  for (const Trainer& trainer : trainers_) EXPECT_EQ(trainer.read_line(), "ready");
  trainers_[1].kill(SIGSTOP);
  const ShellOutcome seen = explain_until(
      mesh_, "rank 1 \\(host a, pid [0-9]+\\) is 3 operations behind, last seen [0-9]+ m?s ago\n");
  EXPECT_THAT(seen.out,
              ContainsRegex("ranks 0, 2, 3 in all_reduce #1 \\(all_reduce f32\\[100\\] sum\\)"));
  EXPECT_EQ(seen.code, 1);
  trainers_[1].kill(SIGCONT);
  next_.open_for(1);
  await_done({0, 1, 2, 3});
  EXPECT_EQ(explain_until(mesh_, "all 4 ranks have joined, and none waits").code, 0);
}

// A binding refuses it and returns; nothing waits for it afterwards.
TEST_F(ExplainProcess, ACallThatIsRefusedOnAllRanks) {
  start({0, 1, 2, 3}, [](Group& group) {
    check_works(group);
    tutti_refuse(group.get(), TUTTI_ALL_REDUCE, TUTTI_INVALID_ARGUMENT, "no such op");
  });
  await_done({0, 1, 2, 3});
  const ShellOutcome seen =
      explain_until(mesh_,
                    "the call of rank 0 \\(host a, pid [0-9]+\\) to all_reduce #1 was refused with "
                    "INVALID_ARGUMENT\n");
  EXPECT_EQ(seen.code, 1);
}

TEST_F(ExplainProcess, RanksThatDisagree) {
  start({0, 1, 2, 3}, [](Group& group) {
    check_works(group);
    std::vector<float> x(100);
    std::vector<double> y(100);
    const Error error = failure_of([&] {
      group.rank() == 2 ? group.all_reduce(std::span(y)) : group.all_reduce(std::span(x));
    });
    check(error.code == TUTTI_FAILED_PRECONDITION, error.what());
  });
  await_done({0, 1, 2, 3});
  const ShellOutcome seen = explain_until(
      mesh_,
      "ranks disagree on #1: ranks 0, 1, 3 asked for all_reduce f32\\[100\\] sum; rank 2 asked for "
      "all_reduce f64\\[100\\] sum\n");
  EXPECT_THAT(seen.out, ContainsRegex("rank 2 \\(host b, pid [0-9]+\\): all_reduce f64"));
  EXPECT_EQ(seen.code, 1);
}

TEST_F(ExplainProcess, ARankThatIsAlwaysLate) {
  start({0, 1, 2, 3}, [](Group& group) {
    while (true) {
      if (group.rank() == 3) poll(nullptr, 0, kLateMs);
      check_works(group);
    }
  });
  const ShellOutcome seen =
      explain_until(mesh_, "rank 3 is late by [2-9][0-9][0-9] ms in the median\n");
  EXPECT_THAT(seen.out, ContainsRegex("rank 3 \\(host b, pid [0-9]+\\): in [0-9]+ operations"));
  EXPECT_EQ(seen.code, 1);
}

TEST_F(ExplainProcess, ARankThatDied) {
  start({0, 1, 2, 3}, [](Group& group) {
    check_works(group);
    write_line("ready");
    if (group.rank() == 3) raise(SIGKILL);
    const Error error = failure_of([&] { check_works(group); });
    check(error.code == TUTTI_UNAVAILABLE, error.what());
  });
  for (const Trainer& trainer : trainers_) EXPECT_EQ(trainer.read_line(), "ready");
  const ShellOutcome seen = explain_until(
      mesh_,
      "rank 3 \\(host b, pid [0-9]+, died\\) is gone, and all_reduce #1, which needed it, failed");
  EXPECT_EQ(seen.code, 1);
  for (const int host : {0, 1})
    EXPECT_TRUE(await([&] {
      return ::testing::Value(
          text_of(mesh_.host(host).log),
          ContainsRegex("job job epoch 1: an operation failed: UNAVAILABLE: rank 3 "));
    })) << text_of(mesh_.host(host).log);
}

// The job's workers are gone, too, before anybody asks.
TEST_F(ExplainProcess, ARankThatDiedIsRememberedWhenTheJobIsGone) {
  start({0, 1, 2, 3}, [](Group& group) {
    check_works(group);
    write_line("ready");
    if (group.rank() == 3) raise(SIGKILL);
    const Error error = failure_of([&] { check_works(group); });
    check(error.code == TUTTI_UNAVAILABLE, error.what());
  });
  for (const Trainer& trainer : trainers_) EXPECT_EQ(trainer.read_line(), "ready");
  await_done({0, 1, 2});
  end_.open_for(3);
  const auto jobs = [&] {
    return run_shell("exec '" + (program_directory() / "tutti").string() +
                     "' jobs --all --address '" + mesh_.host(0).address + "'")
        .out;
  };
  EXPECT_TRUE(await([&] {
    return ::testing::Value(jobs(), ContainsRegex("\njob +[0-9]+ +4  a,b +[0-9]+ m?s ago +failed  "
                                                  "rank 3 \\(host b, pid [0-9]+, died\\) "));
  })) << jobs();
  const ShellOutcome seen = explain(mesh_);
  EXPECT_THAT(seen.out, ContainsRegex("^rank 3 \\(host b, pid [0-9]+, died\\) is gone, and "
                                      "all_reduce #1, which needed it, failed with UNAVAILABLE\n"));
  EXPECT_THAT(seen.out, ContainsRegex("  rank 3 \\(host b, pid [0-9]+\\) died, [0-9]+ m?s ago\n"));
  EXPECT_EQ(seen.code, 1);
  const ShellOutcome all = explain(mesh_, "");
  EXPECT_THAT(all.out,
              HasSubstr("0 problems, 0 warnings in 0 jobs and 2 nodes; failed and gone: job "
                        "(see tutti jobs --all)\n"));
  EXPECT_EQ(all.code, 0);
}

// As launchers end the other ranks when one is gone. Nobody asks in the meantime.
TEST_F(ExplainProcess, WhoDiedFirstIsNamedWhereTheOthersDiedOfIt) {
  start({0, 1, 2, 3}, check_works);
  await_done({0, 1, 2, 3});
  trainers_[3].kill(SIGKILL);
  const TimePoint killed = Clock::now();
  EXPECT_TRUE(await([&] { return Clock::now() > killed + kLead; }));
  for (const int rank : {0, 1, 2}) trainers_[rank].kill(SIGKILL);
  const ShellOutcome seen = explain_until(
      mesh_,
      "rank 3 \\(host b, pid [0-9]+\\) died without leaving the job; ranks 0-2 died at least "
      "[0-9]+ m?s later\n");
  EXPECT_EQ(seen.code, 1);
}

// The first process of a job's worker on a host.
pid_t worker_on(const TestMesh& mesh, int host) {
  const Result<v1::StatusReply> reply = admin_status(mesh.host(host).address, true, 10'000);
  return static_cast<pid_t>(reply->agents(0).workers(0).pid());
}

TEST_F(ExplainProcess, AnEpochThatFailed) {
  start({0, 1, 2, 3}, [](Group& group) {
    check_works(group);
    write_line("ready");
    failure_of([&] {
      while (true) check_works(group);
    });
  });
  for (const Trainer& trainer : trainers_) EXPECT_EQ(trainer.read_line(), "ready");
  kill(worker_on(mesh_, 1), SIGKILL);
  const ShellOutcome seen = explain_until(mesh_, "epoch 1 failed: the worker of host b \\(");
  EXPECT_EQ(seen.code, 1);
}

TEST_F(ExplainProcess, AWorkerThatDoesNotMoveData) {
  start({0, 1, 2, 3}, [this](Group& group) {
    check_works(group);
    write_line("ready");
    next_.wait();
    check_works(group);
  });
  for (const Trainer& trainer : trainers_) EXPECT_EQ(trainer.read_line(), "ready");
  const pid_t worker = worker_on(mesh_, 1);
  kill(worker, SIGSTOP);
  next_.open_for(4);
  const ShellOutcome seen = explain_until(
      mesh_, "all ranks have called all_reduce #1, and its data is under way between hosts for ");
  kill(worker, SIGCONT);
  EXPECT_THAT(seen.out, HasSubstr("  the worker of host b (pid " + std::to_string(worker) +
                                  ") does not answer"));
  EXPECT_EQ(seen.code, 1);
  await_done({0, 1, 2, 3});
}

TEST_F(ExplainProcess, AJobThatWasKilledInAnOperation) {
  start({0, 1, 2, 3}, [this](Group& group) {
    check_works(group);
    write_line("ready");
    next_.wait();
    check_works(group);
  });
  for (const Trainer& trainer : trainers_) EXPECT_EQ(trainer.read_line(), "ready");
  const std::vector<pid_t> workers = {worker_on(mesh_, 0), worker_on(mesh_, 1)};
  kill(workers[1], SIGSTOP);
  next_.open_for(4);
  explain_until(mesh_, "all ranks have called all_reduce #1, and its data is under way");
  kill(workers[0], SIGSTOP);
  for (const Trainer& trainer : trainers_) trainer.kill(SIGKILL);
  for (const pid_t worker : workers) kill(worker, SIGKILL);
  const ShellOutcome seen = explain_until(
      mesh_, "epoch 1 failed: the worker of host [ab] \\(pid [0-9]+\\) was killed by ");
  EXPECT_THAT(seen.out.substr(seen.out.find('\n')),
              MatchesRegex("\n  ranks 0-3 were in all_reduce #1\n  next: dmesg on host [ab], and "
                           "oom_kill in its cgroup's memory.events\n"));
  EXPECT_EQ(seen.code, 1);
}

TEST_F(ExplainProcess, StrategiesThatDisagree) {
  start({0, 1, 2, 3}, [](Group& group) {
    check_works(group);
    std::vector<float> x(100);
    Options options;
    options.strategy = group.rank() == 2 ? "tree:2" : "ring";
    const Error error = failure_of([&] { group.all_reduce(std::span(x), sum, options); });
    check(error.code == TUTTI_FAILED_PRECONDITION, error.what());
  });
  await_done({0, 1, 2, 3});
  explain_until(mesh_,
                "ranks disagree on #1: ranks 0, 1, 3 asked for all_reduce f32\\[100\\] sum "
                "strategy=ring; rank 2 asked for all_reduce f32\\[100\\] sum strategy=tree:2\n");
}

// For longer than the window in which links are looked at.
TEST_F(ExplainProcess, NoHealthyLinkIsAccusedOnALoadedMachine) {
  start({0, 1, 2, 3}, [](Group& group) {
    write_line("done");
    while (true) all_reduce_of(group, 1 << 18);
  });
  await_done({0, 1, 2, 3});
  for (int i = 0; i < 4; ++i)
    trainers_.emplace_back(RankContext(), [](const RankContext&) {
      for (volatile bool runs = true; runs;) continue;
    });
  const TimePoint end = Clock::now() + kLookedAt;
  while (Clock::now() < end) EXPECT_THAT(explain(mesh_).out, Not(HasSubstr("link ")));
}

// Limits what the host sends. A limit that is changed in place may let nothing through for seconds.
void throttle(const TestMesh& mesh, int host, const std::string& rate) {
  const std::string netns =
      "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(mesh.host(host).netns);
  const std::string tc = "nsenter --net=" + netns + " tc qdisc ";
  (void)run_shell(tc + "del dev eth0 root");  // There may be none.
  const ShellOutcome limited =
      run_shell(tc + "add dev eth0 root tbf rate " + rate + " burst 64kb latency 400ms");
  ASSERT_EQ(limited.code, 0) << limited.out;
}

bool can_throttle() { return geteuid() == 0 && run_shell("tc -V && nsenter -V").code == 0; }

// Named so that they are found among the tests that need root.

TEST(ExplainProcessAsRoot, ALinkThatBecomesSlow) {
  if (!can_throttle()) GTEST_SKIP() << "needs root, tc and nsenter";
  const TestMesh mesh(
      LocalMeshOptions{.hosts = 2, .netns = true, .rate_bits_per_s = 1'000'000'000});
  std::vector<Trainer> trainers = mesh.start("job", {1, 1}, [](const RankContext& context) {
    Group group = context.join();
    for (int step = 0; true; ++step) {
      all_reduce_of(group, 1 << 18);
      if (step == 200) write_line("warm");
    }
  });
  for (const Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), "warm");
  EXPECT_EQ(explain(mesh).code, 0);
  throttle(mesh, 1, "20mbit");
  const ShellOutcome seen = explain_until(
      mesh,
      "link b->a moves [0-9.]+ .iB/s while it has something to send, usually [0-9.]+ MiB/s\n");
  EXPECT_THAT(seen.out, ContainsRegex("link b->a: .* segments sent again, round trip [0-9]+ m?s"));
  EXPECT_EQ(seen.code, 1);
}

TEST(ExplainProcessAsRoot, ALinkThatIsSlowFromTheStart) {
  if (!can_throttle()) GTEST_SKIP() << "needs root, tc and nsenter";
  const TestMesh mesh(LocalMeshOptions{.hosts = 3, .netns = true});
  throttle(mesh, 2, "40mbit");
  std::vector<Trainer> trainers = mesh.start("job", {1, 1, 1}, [](const RankContext& context) {
    Group group = context.join();
    Options options;
    options.strategy = "centralized";
    while (true) all_reduce_of(group, 1 << 20, options);
  });
  const ShellOutcome seen = explain_until(
      mesh,
      "link c->[ab] moves [0-9.]+ .iB/s while it has something to send, others [0-9.]+ .iB/s\n");
  EXPECT_EQ(seen.code, 1);
}

}  // namespace
}  // namespace tutti::testing

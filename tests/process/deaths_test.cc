// Acceptance checks about deaths, departures and traffic.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <iterator>

#include "daemon/control/admin_client.h"
#include "proto/mesh.pb.h"
#include "tests/support/await.h"
#include "tests/support/proc_counters.h"
#include "tests/support/test_mesh.h"

namespace tutti {
namespace {

using namespace testing;

class Deaths : public TwoHostsTest {};

TEST_F(Deaths, AKilledTrainerIsNamedAndTheJobMayFormAgain) {
  const auto body = [](const RankContext& context) {
    Group group = context.join();
    check_works(group);
    if (context.rank == 3) {
      write_line("ready");
      pause();
    }
    const Error error =
        failure_of([&] { all_reduce_of(group, 1000, {.timeout = std::chrono::seconds(60)}); });
    check(error.code == TUTTI_UNAVAILABLE, error.what());
    check(error.rank == 3 && error.host == "b", "the culprit");
    check_contains(error, "rank 3 (host b, pid ");
    group = context.join();
    check(group.epoch() == 2, "the next epoch");
    check_works(group);
  };
  std::vector<Trainer> trainers = mesh_.start("job", {2, 2}, body);
  ASSERT_EQ(trainers[3].read_line(), "ready");
  trainers[3].kill(SIGKILL);
  EXPECT_EQ(trainers[3].wait(), "killed by signal 9");
  trainers.pop_back();
  Trainer again(RankContext{"job", mesh_.host(1).socket, 3, 4}, [](const RankContext& context) {
    Group group = context.join();
    check_works(group);
  });
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.mesh().log_tails();
  EXPECT_EQ(again.wait(), "");
}

TEST_F(Deaths, ATrainerKilledAfterItContributedDoesNoHarm) {
  std::vector<Trainer> trainers = mesh_.start("job", {1, 1}, [](const RankContext& context) {
    Group group = context.join();
    std::span<float> x = group.alloc<float>(1000);
    std::fill(x.begin(), x.end(), 1.0f);
    if (context.rank == 1) {
      const Work work = group.all_reduce_async(x);
      raise(SIGKILL);
    }
    group.all_reduce(x);
    for (const float value : x) check(value == 2.0f, "the dead rank's part counts");
  });
  EXPECT_EQ(trainers[1].wait(), "killed by signal 9");
  EXPECT_EQ(trainers[0].wait(), "");
}

constexpr std::chrono::seconds kDeadline{20};

// A child that holds what its parent held open, as those of a DataLoader do, past the deadline.
void fork_holder_of_sockets() {
  if (fork() != 0) return;
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO, Trainer::report_fd()}) close(fd);
  alarm(2 * kDeadline.count());
  for (;;) pause();
}

// This process and its children get no pidfd from a socket, as before Linux 6.5.
bool hide_pidfds_of_peers() {
  constexpr int kPeerPidFd = 77;  // SO_PEERPIDFD.
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kPeerPidFd, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOPROTOOPT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = std::size(code), .filter = code};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// The agent and its worker are in a PID namespace of their own, as in a sidecar: there the trainer
// has no pid, and the socket of one that has a forked child does not end with it. The parameter:
// whether Linux reports the process behind a socket.
class PidNamespaces : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(OfLinux, PidNamespaces, ::testing::Values(true, false));

TEST_P(PidNamespaces, ATrainerThatDiesIsNamedAtOnceAsRoot) {
  if (!GetParam() && !hide_pidfds_of_peers()) GTEST_SKIP() << "needs root";
  TestMesh mesh(1);
  kill(mesh.host(0).agent, SIGKILL);
  const Fd own(open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC));
  if (unshare(CLONE_NEWPID) != 0) GTEST_SKIP() << "needs root";
  restart_agent(mesh.host(0), {});  // The first process there.
  ASSERT_EQ(setns(own.get(), CLONE_NEWPID), 0);
  await([&] { return admin_status(mesh.host(0).address, true, 1'000).ok(); });
  EXPECT_EQ(mesh.run("job", {2},
                     [](const RankContext& context) {
                       Group group = context.join();
                       check_works(group);
                       if (context.rank == 1) {
                         fork_holder_of_sockets();
                         raise(SIGKILL);
                       }
                       const Error error =
                           failure_of([&] { all_reduce_of(group, 10, {.timeout = kDeadline}); });
                       check(error.code == TUTTI_UNAVAILABLE && error.rank == 1, error.what());
                       check_contains(error, "rank 1 (host a");
                       check_contains(error, "died");
                     })
                .substr(0, 19),
            "killed by signal 9\n");
}

void survive_a_lost_host(const RankContext& context) {
  Group group = context.join();
  check_works(group);
  write_line("ready");
  const auto begin = std::chrono::steady_clock::now();
  const Error error = failure_of([&] {
    for (;;)
      all_reduce_of(group, 1'000'000, {.strategy = "ring", .timeout = std::chrono::seconds(60)});
  });
  check(error.code == TUTTI_UNAVAILABLE, error.what());
  check(context.rank >= 2 || (error.host == "b" && error.rank == -1), error.what());
  check(std::chrono::steady_clock::now() - begin < std::chrono::seconds(40), "in time");
}

TEST_F(Deaths, AKilledWorkerMidRingIsNamed) {
  std::vector<Trainer> trainers = mesh_.start("job", {2, 2}, survive_a_lost_host);
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  const pid_t worker = worker_of(mesh_, 1);
  ASSERT_GT(worker, 0);
  kill(worker, SIGKILL);
  EXPECT_EQ(TestMesh::wait(trainers), "");
}

TEST_F(Deaths, ATerminatedWorkerSaysThatItWasStopped) {
  std::vector<Trainer> trainers = mesh_.start("job", {2, 2}, [](const RankContext& context) {
    Group group = context.join();
    check_works(group);
    write_line("ready");
    const Error error = failure_of([&] {
      for (;;) all_reduce_of(group, 1'000'000, {.timeout = std::chrono::seconds(60)});
    });
    check(error.code == TUTTI_UNAVAILABLE, error.what());
    check_contains(error, "the worker of host b was stopped");
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  const pid_t worker = worker_of(mesh_, 1);
  ASSERT_GT(worker, 0);
  kill(worker, SIGTERM);
  EXPECT_EQ(TestMesh::wait(trainers), "");
}

TEST_F(Deaths, AKilledHostMidRingIsNamedAndItsAgentMayComeBack) {
  std::vector<Trainer> trainers = mesh_.start("job", {2, 2}, survive_a_lost_host);
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  const pid_t worker = worker_of(mesh_, 1);
  ASSERT_GT(worker, 0);
  kill(mesh_.host(1).agent, SIGKILL);
  kill(worker, SIGKILL);
  EXPECT_EQ(TestMesh::wait(trainers), "");
}

TEST_F(Deaths, AKilledAgentHarmsNoRunningJob) {
  std::vector<Trainer> trainers = mesh_.start("job", {2, 2}, [](const RankContext& context) {
    Group group = context.join();
    check_works(group);
    write_line("ready");
    for (int i = 0; i < 200; ++i) check_works(group);
    group.barrier();
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  kill(mesh_.host(1).agent, SIGKILL);
  EXPECT_EQ(TestMesh::wait(trainers), "");
}

TEST_F(Deaths, ARankThatIsAheadQueues) {
  EXPECT_EQ(run({2, 1},
                [](const RankContext& context) {
                  Group group = context.join();
                  std::vector<float> a(10, 1.0f), b(10, 2.0f);
                  if (context.rank == 0) {
                    Work first = group.all_reduce_async(std::span(a));
                    Work second = group.all_reduce_async(std::span(b));
                    second.wait();
                    first.wait();
                  } else {
                    group.all_reduce(std::span(a));
                    group.all_reduce(std::span(b));
                  }
                  check(a[9] == 3.0f && b[9] == 6.0f, "each call met its own");
                }),
            "");
}

TEST_F(Deaths, ALeaveFailsThoseThatWait) {
  EXPECT_EQ(run({2, 1},
                [](const RankContext& context) {
                  Group group = context.join();
                  check_works(group);
                  if (context.rank == 1) return group.leave();
                  const Error error = failure_of([&] { all_reduce_of(group, 10); });
                  check(error.code == TUTTI_UNAVAILABLE && error.rank == 1, error.what());
                  check_contains(error, "left");
                }),
            "");
}

// Bytes that host `index`'s worker sent so far; its job must be running.
uint64_t sent_by(const TestMesh& mesh, int host) {
  const auto status = admin_status(mesh.host(host).address, true, 5'000);
  if (!status.ok() || status->agents(0).workers_size() != 1) return 0;
  return status->agents(0).workers(0).sent_bytes();
}

// The worker stays for a while after its ranks have left.
TEST_F(Deaths, AJobWhoseRanksHaveLeftIsShownAsEnded) {
  EXPECT_EQ(run({2},
                [](const RankContext& context) {
                  Group group = context.join();
                  check_works(group);
                  group.leave();
                }),
            "");
  std::string state;
  await([&] {
    const Result<v1::StatusReply> reply = admin_status(mesh_.host(0).address, true, 10'000);
    const bool is_shown =
        reply.ok() && reply->agents_size() == 1 && reply->agents(0).workers_size() == 1;
    state = is_shown ? reply->agents(0).workers(0).state() : "not shown";
    return state != "running";
  });
  EXPECT_EQ(state, "ended");
}

TEST(Traffic, RingSendsItsShareAndCentralizedsRootReceivesAll) {
  constexpr int kHosts = 4;
  constexpr size_t kElements = 1'000'000;
  TestMesh mesh(kHosts);
  std::vector<Trainer> trainers = mesh.start("job", {1, 1, 1, 1}, [](const RankContext& context) {
    Group group = context.join();
    all_reduce_of(group, kElements, {.strategy = "ring"});
    group.barrier();
    write_line("ring");
    pause();
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ring");
  const double share = 2.0 * (kHosts - 1) / kHosts * kElements * 4;
  for (int host = 0; host < kHosts; ++host)
    EXPECT_NEAR(static_cast<double>(sent_by(mesh, host)), share, 0.01 * share) << "host " << host;
  for (Trainer& trainer : trainers) trainer.kill(SIGKILL);
  trainers.clear();

  trainers = mesh.start("other", {1, 1, 1, 1}, [](const RankContext& context) {
    Group group = context.join();
    all_reduce_of(group, kElements, {.strategy = "centralized"});
    group.barrier();
    write_line("centralized");
    pause();
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "centralized");
  const auto status = admin_status(mesh.host(0).address, true, 5'000);
  ASSERT_TRUE(status.ok());
  for (const v1::WorkerReport& worker : status->agents(0).workers()) {
    if (worker.job() != "other") continue;
    EXPECT_NEAR(static_cast<double>(worker.received_bytes()), (kHosts - 1.0) * kElements * 4,
                0.01 * kHosts * kElements * 4);
  }
}

}  // namespace
}  // namespace tutti

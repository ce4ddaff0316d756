// Ordinary memory between hosts passes through windows: errors are named when a rank or worker dies
// or stops. Values: tests/process/values_test.cc.
#include <gtest/gtest.h>

#include "tests/process/board_fixture.h"
#include "tests/support/proc_counters.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using namespace testing;

// Tensors pass through the small windows several times.
class BoardHosts : public ::testing::Test {
 protected:
  // A job of its own for each layout, since the ranks are on other hosts.
  std::string run(const std::vector<int>& layout, const Trainer::Body& body) {
    return mesh_.run("job" + std::to_string(jobs_++), layout, body);
  }

  TestMesh mesh_ = mesh_with_small_windows(3);
  int jobs_ = 0;
};

// Also on 3 x 3: windows hold whole slices for every host, whatever the number of ranks.
TEST_F(BoardHosts, NothingIsCopiedAsAWhole) {
  EXPECT_EQ(run({1, 1}, check_nothing_is_copied), "");
  EXPECT_EQ(run({3, 3, 3}, check_nothing_is_copied), "");
  EXPECT_EQ(run({1, 1}, check_no_blocks_are_copied), "");
}

// As under a launcher that binds ranks: their workers have no other cores.
void bind_to_one_core(int rank) {
  cpu_set_t cores;
  check(sched_getaffinity(0, sizeof(cores), &cores) == 0, "the cores");
  int skip = rank % CPU_COUNT(&cores);
  int core = 0;
  while (!CPU_ISSET(core, &cores) || skip-- != 0) ++core;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  check(sched_setaffinity(0, sizeof(cores), &cores) == 0, "one core");
}

// Each rank blocks, waits, polls and does not wait in turn, and no two do the same at once.
TEST_F(BoardHosts, RanksMayWaitEachInItsWay) {
  EXPECT_EQ(run({2, 2},
                [](const RankContext& context) {
                  bind_to_one_core(context.rank);
                  Group group = context.join();
                  for (int step = 0; step < 400; ++step) {
                    std::vector<float> x(step % 3 == 0 ? 20'000 : 10,
                                         static_cast<float>(step + context.rank));
                    const int way = (step + context.rank) % 4;
                    if (way == 0) group.all_reduce(std::span(x));
                    if (way == 0) check_all(x, sum_at(4, step));
                    if (way == 0) continue;
                    Work work =
                        group.all_reduce_async(std::span(x), sum, {.buffers_stay = way == 1});
                    if (way == 3) continue;  // The work is freed.
                    while (way == 2 && !work.done()) continue;
                    work.wait();
                    check_all(x, sum_at(4, step));
                  }
                  check_works(group);
                }),
            "");
}

// What it contributed counts; what it did not fails for those who wait, and for those who poll.
TEST_F(BoardHosts, WhoDiesBetweenItsCallAndItsWaitIsNamed) {
  std::vector<Trainer> trainers = mesh_.start("job", {2, 2}, [](const RankContext& context) {
    bind_to_one_core(context.rank);
    Group group = context.join();
    check_works(group);
    std::vector<float> x(10, static_cast<float>(context.rank));
    Work work = group.all_reduce_async(std::span(x), sum, {.timeout = 60s});
    if (context.rank == 3) raise(SIGKILL);
    work.wait();
    check_all(x, sum_at(4, 0));
    const Error error = failure_of([&] {
      Work next = group.all_reduce_async(std::span(x), sum, {.timeout = 60s});
      while (context.rank == 1 && !next.done()) continue;
      next.wait();
    });
    check(error.code == TUTTI_UNAVAILABLE && error.rank == 3, error.what());
  });
  EXPECT_EQ(trainers.back().wait(), "killed by signal 9");
  trainers.pop_back();
  EXPECT_EQ(TestMesh::wait(trainers), "");
}

// A rank that dies with its tensor half in its window is named at once, on every host.
TEST_F(BoardHosts, WhoDiesHalfWayIsNamedEverywhere) {
  for (const auto after : {1ms, 3ms, 7ms, 20ms}) {
    std::vector<Trainer> trainers =
        mesh_.start("job" + std::to_string(jobs_++), {2, 2}, [after](const RankContext& context) {
          Group group = context.join();
          check_works(group);
          if (context.rank == 3) signal_myself(SIGKILL, after);
          const Error error = work_until_failure(group, 3'000'000, false, {.timeout = 60s});
          check(error.code == TUTTI_UNAVAILABLE, error.what());
          check(error.rank == 3, error.what());
          write_line("named");
        });
    const auto start = std::chrono::steady_clock::now();
    for (const int rank : {0, 1, 2}) EXPECT_EQ(trainers[rank].read_line(), "named");
    EXPECT_LT(std::chrono::steady_clock::now() - start, 20s) << "far from the 60 s it might take";
    EXPECT_EQ(trainers[3].wait(), "killed by signal 9");
    for (const int rank : {0, 1, 2}) EXPECT_EQ(trainers[rank].wait(), "");
  }
}

TEST_F(BoardHosts, WhoStopsHalfWayIsNamedAtTheDeadline) {
  for (const auto after : {1ms, 5ms, 20ms}) {
    std::vector<Trainer> trainers =
        mesh_.start("job" + std::to_string(jobs_++), {2, 2}, [after](const RankContext& context) {
          Group group = context.join();
          check_works(group);
          if (context.rank == 3) signal_myself(SIGSTOP, after);
          const Error error = work_until_failure(group, 3'000'000, false, {.timeout = 2'500ms});
          if (context.rank == 3) return;
          check(error.code == TUTTI_DEADLINE_EXCEEDED, error.what());
          check(error.rank == 3, error.what());
          write_line("named");
        });
    for (const int rank : {0, 1, 2}) EXPECT_EQ(trainers[rank].read_line(), "named");
    trainers[3].kill(SIGCONT);
    EXPECT_EQ(TestMesh::wait(trainers), "");
  }
}

// Ranks of its host and of others, the leader's worker or another, small tensors and tensors under
// way: all ranks fail by the same time and name the same worker.
TEST_F(BoardHosts, AWorkerThatStopsIsNamedToAllSoonAfterTheDeadline) {
  constexpr auto kTimeout = 1'000ms;
  constexpr auto kMost = 20s;      // By rights half a second: the machine may be busy.
  constexpr auto kSoon = 2'500ms;  // But not all the time.
  const testing::SharedCounters signals;
  for (const int stopped : {0, 1}) {
    for (const size_t count : {10u, 3'000'000u}) {
      const std::string job = "job" + std::to_string(jobs_++);
      signals[0] = 0;
      std::vector<Trainer> trainers = mesh_.start(job, {2, 2}, [&](const RankContext& context) {
        Group group = context.join();
        check_works(group);
        write_line("ready");
        signals.wait_for(0, 1);
        const auto begin = std::chrono::steady_clock::now();
        const Error error = failure_of([&] { all_reduce_of(group, count, {.timeout = kTimeout}); });
        const auto late = std::chrono::steady_clock::now() - begin - kTimeout;
        check(late < kMost, "in time: " + std::string(error.what()));
        if (late < kSoon) ++signals[1];
        check(error.code == TUTTI_DEADLINE_EXCEEDED, error.what());
        check_contains(error, "the worker of");
        check_contains(error, " host " + mesh_.host(stopped).name + " (");
        check_contains(error, "does not answer");
        check_contains(error, "join again");
      });
      for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
      const auto worker = static_cast<pid_t>(testing::worker_report(mesh_, stopped, job).pid());
      ASSERT_GT(worker, 0);
      kill(worker, SIGSTOP);
      signals[0] = 1;
      EXPECT_EQ(TestMesh::wait(trainers), "");
      kill(worker, SIGCONT);
    }
  }
  EXPECT_GE(signals[1], 4) << "as many ranks as one of the cases has failed soon";
}

}  // namespace
}  // namespace tutti

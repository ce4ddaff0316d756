// Faults of ranks that meet on one host's board: disagreement, lateness, death. With real agents,
// workers and processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <ctime>

#include "tests/process/board_fixture.h"
#include "tests/support/proc_counters.h"

namespace tutti {
namespace {

using namespace testing;
using namespace std::chrono_literals;

class BoardFaults : public ::testing::Test {
 protected:
  std::string run(int ranks, const Trainer::Body& body) { return mesh_.run("job", {ranks}, body); }

  SharedCounters signals_;
  TestMesh mesh_{1};
};

// ---- Disagreement and lateness ----

TEST_F(BoardFaults, RanksThatDisagreeAreNotifiedByName) {
  EXPECT_EQ(run(3,
                [](const RankContext& context) {
                  Group group = context.join();
                  for (const size_t count : {4u, 100'000u, 1'000'000u})
                    for (const bool async : {false, true}) {
                      std::vector<float> x(count + 1);
                      const std::span<float> mine(x.data(), count + (context.rank == 1 ? 1 : 0));
                      const Error error = failure_of([&] {
                        async ? group.all_reduce_async(mine).wait() : group.all_reduce(mine);
                      });
                      check(error.code == TUTTI_FAILED_PRECONDITION, error.what());
                      check_contains(error, "[" + std::to_string(count) + "]");
                      check_contains(error, "[" + std::to_string(count + 1) + "]");
                      for (int i = 0; i < 3; ++i) check_works(group);
                    }
                }),
            "");
}

TEST_F(BoardFaults, WhatIsRefusedIsRefusedForAll) {
  EXPECT_EQ(run(2,
                [](const RankContext& context) {
                  Group group = context.join();
                  std::vector<int32_t> x(10);
                  const Error error = failure_of([&] { group.all_reduce(std::span(x), mean); });
                  check(error.code == TUTTI_INVALID_ARGUMENT, error.what());
                  check_works(group);
                  check(failure_of([&] { group.broadcast(std::span(x), 2); }).code ==
                            TUTTI_INVALID_ARGUMENT,
                        "no such root");
                  check_works(group);
                }),
            "");
}

TEST_F(BoardFaults, ALateRankIsNamedAndGetsTheSame) {
  EXPECT_EQ(run(3,
                [this](const RankContext& context) {
                  Group group = context.join();
                  int signal = 0;
                  for (const size_t count : {100u, 500'000u})
                    for (const auto timeout : {200ms, 600ms}) {
                      if (context.rank == 1) signals_.wait_for(signal, 2);
                      const Error error =
                          failure_of([&] { all_reduce_of(group, count, {.timeout = timeout}); });
                      check(error.code == TUTTI_DEADLINE_EXCEEDED, error.what());
                      check(error.rank == 1, "the late rank is named");
                      check_contains(error, "rank 1");
                      check_contains(error,
                                     "timed out after " + std::to_string(timeout.count()) + " ms");
                      ++signals_[signal++];
                      for (int i = 0; i < 3; ++i) check_works(group);
                    }
                }),
            "");
}

// ---- Deaths ----

// Each time with a larger tensor in another kind of memory, and killed a little later.
struct Moment {
  size_t count;
  bool shared;
  std::chrono::microseconds after;
};
Moment moment_of(int round) {
  constexpr size_t kCounts[] = {1, 1000, 60'000, 1'000'000};
  std::mt19937 random(static_cast<unsigned>(round));
  return {kCounts[round % 4], round / 4 % 2 == 0, std::chrono::microseconds(random() % 5000)};
}

// At some moment of what comes next.
TEST_F(BoardFaults, ARankKilledAtAnyMomentIsNamedSoonAndTheJobFormsAgain) {
  for (int round = 0; round < 20; ++round) {
    const Moment moment = moment_of(round);
    const std::string job = "job" + std::to_string(round);
    std::vector<Trainer> trainers = mesh_.start(job, {3}, [&](const RankContext& context) {
      Group group = context.join();
      check_works(group);
      write_line("ready");
      if (context.rank == 2) signal_myself(SIGKILL, moment.after);
      const Error error = work_until_failure(group, moment.count, moment.shared, {.timeout = 60s});
      check(error.code == TUTTI_UNAVAILABLE && error.rank == 2, error.what());
      check_contains(error, "rank 2 (host a, pid ");
      group = context.join();
      check(group.epoch() == 2, "the next epoch");
      for (int i = 0; i < 5; ++i) check_works(group);
    });
    for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
    const auto killed = std::chrono::steady_clock::now();
    EXPECT_EQ(trainers[2].wait(), "killed by signal 9");
    trainers.pop_back();
    Trainer again(RankContext{job, mesh_.host(0).socket, 2, 3}, [](const RankContext& context) {
      Group group = context.join();
      for (int i = 0; i < 5; ++i) check_works(group);
    });
    EXPECT_EQ(TestMesh::wait(trainers), "") << "round " << round << mesh_.mesh().log_tails();
    EXPECT_EQ(again.wait(), "");
    EXPECT_LT(std::chrono::steady_clock::now() - killed, 20s) << "far from the 60 s it might take";
  }
}

TEST_F(BoardFaults, WhatADeadRankContributedCounts) {
  for (const size_t count : {10u, 50'000u, 500'000u})
    for (const bool shared : {true, false}) {
      std::vector<Trainer> trainers = mesh_.start("job", {3}, [&](const RankContext& context) {
        Group group = context.join();
        check_works(group);
        std::vector<float> own;
        const std::span<float> x = tensor(group, own, count, shared);
        std::ranges::fill(x, 2.0f);
        if (context.rank == 2) {
          const Work work = group.all_reduce_async(x);
          raise(SIGKILL);
        }
        group.all_reduce(x);
        for (const float value : x) check(value == 6.0f, "the dead rank's part counts");
        const Error error = failure_of([&] { group.barrier(); });
        check(error.code == TUTTI_UNAVAILABLE && error.rank == 2, error.what());
      });
      EXPECT_EQ(trainers[2].wait(), "killed by signal 9");
      trainers.pop_back();
      EXPECT_EQ(TestMesh::wait(trainers), "") << count << mesh_.mesh().log_tails();
    }
}

// ---- Stopped ranks ----

TEST_F(BoardFaults, ARankStoppedAtAnyMomentIsNamedAndMayComeBack) {
  for (int round = 0; round < 12; ++round) {
    const Moment moment = moment_of(round);
    const std::string job = "job" + std::to_string(round);
    std::vector<Trainer> trainers = mesh_.start(job, {3}, [&](const RankContext& context) {
      Group group = context.join();
      check_works(group);
      write_line("ready");
      if (context.rank == 1) signal_myself(SIGSTOP, moment.after);
      const Error error =
          work_until_failure(group, moment.count, moment.shared, {.timeout = 700ms});
      if (context.rank != 1) {
        check(error.code == TUTTI_DEADLINE_EXCEEDED, error.what());
        check(error.rank == 1, error.what());
        write_line("named");
      }
      group.leave();
      group = context.join();
      for (int i = 0; i < 30; ++i) check_works(group);
      all_reduce_of(group, 300'000);
    });
    for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
    for (const int rank : {0, 2})
      ASSERT_EQ(trainers[rank].read_line(), "named")
          << "round " << round << mesh_.mesh().log_tails();
    trainers[1].kill(SIGCONT);
    EXPECT_EQ(TestMesh::wait(trainers), "") << "round " << round << mesh_.mesh().log_tails();
  }
}

// ---- Other ends ----

TEST_F(BoardFaults, AKilledWorkerIsNoticedByBusyRanks) {
  for (const size_t count : {10u, 1'000'000u}) {
    std::vector<Trainer> trainers = mesh_.start("job", {2}, [&](const RankContext& context) {
      Group group = context.join();
      check_works(group);
      write_line("ready");
      const Error error = work_until_failure(group, count, false, {.timeout = 60s});
      check(error.code == TUTTI_UNAVAILABLE, error.what());
      check_contains(error, "worker");
      group = context.join();
      check_works(group);
    });
    for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
    const auto pid = static_cast<pid_t>(testing::worker_report(mesh_, 0, "job").pid());
    ASSERT_GT(pid, 0);
    const auto killed = std::chrono::steady_clock::now();
    kill(pid, SIGKILL);
    EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.mesh().log_tails();
    EXPECT_LT(std::chrono::steady_clock::now() - killed, 20s);
  }
}

TEST_F(BoardFaults, ARankThatLeavesIsNamed) {
  EXPECT_EQ(run(3,
                [](const RankContext& context) {
                  Group group = context.join();
                  for (int i = 0; i < 100; ++i) check_works(group);
                  if (context.rank == 2) return group.leave();
                  for (int i = 0; i < 2; ++i) {
                    const Error error = failure_of([&] { check_works(group); });
                    check(error.code == TUTTI_UNAVAILABLE && error.rank == 2, error.what());
                    check_contains(error, "left");
                  }
                }),
            "");
}

// The worker sees both events in one turn, the join first: it reads the join together with the
// request for its report, which was sent before the connections ended.
TEST_F(BoardFaults, AJoinThatOvertakesTheEndOfTheOldConnectionIsTaken) {
  std::vector<Trainer> trainers = mesh_.start("job", {2}, [this](const RankContext& context) {
    for (int epoch = 1; epoch <= 2; ++epoch) {
      Group group = context.join();
      check_works(group);
      check(group.epoch() == static_cast<uint32_t>(epoch),
            "epoch " + std::to_string(group.epoch()));
      write_line("in");
      signals_.wait_for(0, epoch);
      group.leave();
      ++signals_[1];
      signals_.wait_for(1, 2 * epoch);
    }
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "in");
  const auto worker = static_cast<pid_t>(testing::worker_report(mesh_, 0, "job").pid());
  ASSERT_GT(worker, 0);
  kill(worker, SIGSTOP);
  testing::worker_report(mesh_, 0, "job");
  signals_[0] = 1;
  signals_.wait_for(1, 2);
  testing::worker_report(mesh_, 0,
                         "job");  // Takes long enough for the joins to come to the worker.
  kill(worker, SIGCONT);
  for (Trainer& trainer : trainers)
    EXPECT_EQ(trainer.read_line(), "in") << mesh_.mesh().log_tails();
  signals_[0] = 2;
  EXPECT_EQ(TestMesh::wait(trainers), "");
}

// Counts the segments and boards that the process has mapped.
int memories_of(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("memfd:tutti-") != std::string::npos;
  return count;
}

TEST_F(BoardFaults, FiftyEpochsLeaveNothing) {
  std::vector<Trainer> trainers = mesh_.start("job", {2}, [this](const RankContext& context) {
    int descriptors = 0, memories = 0;
    for (int epoch = 0; epoch < 51; ++epoch) {
      {
        Group group = context.join();
        for (int i = 0; i < 10; ++i) check_works(group);
        all_reduce_of(group, 200'000);
        check(memories_of(getpid()) >= 3, "two segments and a board");
      }
      // A rank joins again only after the other's old connection is closed.
      ++signals_[0];
      signals_.wait_for(0, 2 * epoch + 2);
      if (epoch == 0) {
        descriptors = open_descriptors();
        memories = memories_of(getpid());
        write_line("warm");
        signals_.wait_for(1, 1);
      }
    }
    check(open_descriptors() <= descriptors, "the trainer's descriptors");
    check(memories_of(getpid()) <= memories, "the trainer's memories");
    write_line("done");
    signals_.wait_for(1, 2);
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "warm");
  const auto worker = static_cast<pid_t>(testing::worker_report(mesh_, 0, "job").pid());
  ASSERT_GT(worker, 0);
  const int descriptors = open_descriptors(worker);
  const int memories = memories_of(worker);
  signals_[1] = 1;
  for (Trainer& trainer : trainers)
    EXPECT_EQ(trainer.read_line(), "done") << mesh_.mesh().log_tails();
  EXPECT_EQ(static_cast<pid_t>(testing::worker_report(mesh_, 0, "job").pid()), worker);
  EXPECT_LE(open_descriptors(worker), descriptors + 2);
  EXPECT_LE(memories_of(worker), memories + 3) << "those of one epoch";
  signals_[1] = 2;
  EXPECT_EQ(TestMesh::wait(trainers), "");
}

}  // namespace
}  // namespace tutti

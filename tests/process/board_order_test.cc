// The order of operations when ranks of one host meet on the board and at their worker in turn.
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "tests/process/board_fixture.h"
#include "tests/support/proc_counters.h"

namespace tutti {
namespace {

using namespace testing;

class BoardOrder : public ::testing::Test {
 protected:
  std::string run(int ranks, const Trainer::Body& body) { return mesh_.run("job", {ranks}, body); }

  SharedCounters signals_;
  TestMesh mesh_{1};
};

TEST_F(BoardOrder, StrategiesInTurnKeepTheOrder) {
  EXPECT_EQ(run(3,
                [](const RankContext& context) {
                  Group group = context.join();
                  const char* strategies[] = {"", "ring", "", "", "tree:2", "centralized"};
                  for (int round = 0; round < 20; ++round) {
                    std::deque<Part> parts;
                    for (size_t i = 0; i < 100; ++i) {
                      // Each has another size, so that no two can be confused.
                      parts.emplace_back(
                          group,
                          Task{Collective::all_reduce, Dtype::f32, Op::sum, 1 + i, Memory::by_rank,
                               Way::async, true, strategies[(i + static_cast<size_t>(round)) % 6]});
                      parts.back().begin();
                    }
                    for (Part& part : parts) part.end();
                  }
                }),
            "");
}

// Operations of one size; each rank waits for another one. A waiting rank hands the operations that
// are newer than those others wait for to the worker.
TEST_F(BoardOrder, TheOrderHoldsForEveryWaiter) {
  EXPECT_EQ(run(4,
                [this](const RankContext& context) {
                  Group group = context.join();
                  std::vector<uint32_t> pair = {0, 1};
                  if (context.rank >= 2) pair = {2, 3};
                  Group half = group.subgroup(pair);
                  for (int round = 0; round < 5; ++round) {
                    if (context.rank == 3) signals_.wait_for(0, round + 1);
                    std::vector<std::vector<float>> tensors;
                    std::deque<Work> works;
                    for (int step = 0; step < 20; ++step)
                      tensors.emplace_back(10, static_cast<float>(step + context.rank));
                    for (auto& tensor : tensors)
                      works.push_back(group.all_reduce_async(std::span(tensor)));
                    // Ranks that wait for newer operations stop spinning first.
                    const auto newest = static_cast<size_t>(19 - context.rank);
                    const bool done = works[newest].wait_for(std::chrono::milliseconds(200));
                    check(context.rank != 0 || !done, "rank 3 has not come");
                    if (context.rank == 0) {
                      half.all_reduce(std::span(tensors[0].data(), 0));
                      signals_[0] = round + 1;
                    } else if (context.rank == 1) {
                      half.all_reduce(std::span(tensors[0].data(), 0));
                    }
                    for (Work& work : works) work.wait();
                    for (int step = 0; step < 20; ++step) check_all(tensors[step], sum_at(4, step));
                    group.barrier();
                  }
                }),
            "");
}

// Each operation ends at another moment of a wait.
TEST_F(BoardOrder, AWaitThatRunsOutAsTheOperationEndsIsNoFailure) {
  EXPECT_EQ(run(2,
                [](const RankContext& context) {
                  Group group = context.join();
                  for (int round = 0; round < 5'000; ++round) {
                    std::vector<float> tensor(1, 1);
                    const auto late = std::chrono::microseconds(context.rank * round % 997);
                    const auto from = std::chrono::steady_clock::now();
                    while (std::chrono::steady_clock::now() - from < late) continue;
                    Work work = group.all_reduce_async(std::span(tensor));
                    while (!work.wait_for(std::chrono::milliseconds(0))) continue;
                    check_all(tensor, 2);
                  }
                }),
            "");
}

// A list is one operation, whatever its tensors: ranks with different lists still meet at the same
// next one.
TEST_F(BoardOrder, ListsTakeOnePlaceInTheOrder) {
  EXPECT_EQ(run(2,
                [](const RankContext& context) {
                  Group group = context.join();
                  for (int round = 0; round < 6; ++round) {
                    const bool differ = round % 2 == 1;
                    const size_t tensors = differ && context.rank == round % 4 / 2 ? 1 : 4;
                    std::vector<std::vector<float>> list(tensors, std::vector<float>(100'000, 1));
                    std::vector<std::span<float>> spans(list.begin(), list.end());
                    Work work = group.all_reduce_many_async(spans);
                    std::vector<std::vector<float>> others;
                    std::deque<Work> works;
                    for (int step = 0; step < 30; ++step)
                      others.emplace_back(10, static_cast<float>(step + context.rank));
                    for (auto& other : others)
                      works.push_back(group.all_reduce_async(std::span(other)));
                    if (differ)
                      check(failure_of([&] { work.wait(); }).code == TUTTI_FAILED_PRECONDITION,
                            "lists that differ");
                    else
                      work.wait();
                    for (const auto& tensor : list)
                      if (!differ) check_all(tensor, 2);
                    for (Work& other : works) other.wait();
                    for (int step = 0; step < 30; ++step) check_all(others[step], sum_at(2, step));
                  }
                }),
            "");
}

TEST_F(BoardOrder, SubGroupsBeside) {
  EXPECT_EQ(run(4,
                [](const RankContext& context) {
                  Group group = context.join();
                  std::vector<uint32_t> ranks = {0, 2};
                  if (context.rank % 2 == 1) ranks = {1, 3};
                  Group half = group.subgroup(ranks);
                  for (int step = 0; step < 300; ++step) {
                    std::vector<float> a(20, 1.0f), b(20, 2.0f), c(20, 3.0f);
                    Work whole = group.all_reduce_async(std::span(a));
                    Work part = half.all_reduce_async(std::span(b));
                    group.all_reduce(std::span(c));
                    part.wait();
                    whole.wait();
                    check(a[19] == 4.0f && b[19] == 4.0f && c[19] == 12.0f, "three sums");
                  }
                }),
            "");
}

TEST_F(BoardOrder, TheStrategyMayChangeMeanwhile) {
  std::vector<Trainer> trainers = mesh_.start("job", {3}, [this](const RankContext& context) {
    Group group = context.join();
    if (context.rank == 0) write_line("ready");
    for (;;) {
      stream(group, 20, 100, true);
      stream(group, 5, 100'001, false);
      std::vector<int32_t> last(1, signals_[0]);  // All ranks end in the same round.
      group.broadcast(std::span(last), 0);
      if (last[0] != 0) break;
    }
  });
  ASSERT_EQ(trainers[0].read_line(), "ready");
  for (int i = 0; i < 40; ++i)
    for (const char* strategy : {"ring", "auto", "tree:2", "centralized"})
      EXPECT_TRUE(admin_set_strategy(mesh_.host(0).address, "job", strategy, 5000).ok());
  signals_[0] = 1;
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.mesh().log_tails();
}

// Two threads call in turn, in the same order on all ranks, and wait at the same time.
TEST_F(BoardOrder, TwoThreadsOfEachRank) {
  EXPECT_EQ(run(2,
                [](const RankContext& context) {
                  Group group = context.join();
                  std::mutex order;
                  int next = 0;
                  std::string failed;
                  const auto work = [&](int parity) {
                    for (int step = parity; step < 2000; step += 2) {
                      std::vector<float> x(step % 50 == 0 ? 40'001 : 8,
                                           static_cast<float>(step + context.rank));
                      std::optional<Work> asked;
                      while (!asked) {
                        const std::lock_guard lock(order);
                        if (next != step) continue;
                        asked.emplace(group.all_reduce_async(std::span(x)));
                        ++next;
                      }
                      asked->wait();
                      const bool right = x.front() == sum_at(2, step) && x.back() == x.front();
                      const std::lock_guard lock(order);
                      if (!right) failed = "step " + std::to_string(step);
                    }
                  };
                  std::thread other(work, 1);
                  work(0);
                  other.join();
                  check(failed.empty(), failed);
                }),
            "");
}

TEST_F(BoardOrder, AForkedChildChangesNothing) {
  EXPECT_EQ(run(2,
                [](const RankContext& context) {
                  Group group = context.join();
                  for (int round = 0; round < 5; ++round) {
                    std::vector<float> x(10, 1.0f);
                    Work work = group.all_reduce_async(std::span(x));
                    const pid_t child = fork();
                    if (child == 0) {
                      const Error own = failure_of([&] { group.barrier(); });
                      const Error inherited = failure_of([&] { work.wait(); });
                      _exit(own.code == TUTTI_FAILED_PRECONDITION &&
                                    inherited.code == TUTTI_FAILED_PRECONDITION
                                ? 0
                                : 1);
                    }
                    int status = -1;
                    check(waitpid(child, &status, 0) == child && status == 0, "the child's end");
                    work.wait();
                    check(x[9] == 2.0f, "the parent's sum");
                    check_works(group);
                  }
                }),
            "");
}

// ---- Reports ----

TEST_F(BoardOrder, OperationsAndBytesAreCounted) {
  std::vector<Trainer> trainers = mesh_.start("job", {2}, [this](const RankContext& context) {
    Group group = context.join();
    stream(group, 100, 10, true);       // By the board, 40 bytes each.
    stream(group, 10, 100'000, false);  // Block by block, 400,000 each.
    all_reduce_of(group, 7, {.strategy = "ring"});
    group.barrier();
    write_line("ready");
    signals_.wait_for(0, 1);
  });
  for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
  const v1::WorkerReport report = testing::worker_report(mesh_, 0, "job");
  signals_[0] = 1;
  EXPECT_EQ(TestMesh::wait(trainers), "");
  constexpr uint64_t kOperations = 100 + 10 + 1 + 1;
  constexpr uint64_t kBytes = 100 * 40 + 10 * 400'000 + 28;
  ASSERT_EQ(report.ranks_size(), 2);
  for (const v1::RankReport& rank : report.ranks()) {
    EXPECT_EQ(rank.operations(), kOperations);
    EXPECT_EQ(rank.bytes(), kBytes);
  }
  EXPECT_EQ(report.operations(), 2 * kOperations);
  EXPECT_EQ(report.bytes(), 2 * kBytes);
  EXPECT_EQ(report.failures(), 0u);
}

}  // namespace
}  // namespace tutti

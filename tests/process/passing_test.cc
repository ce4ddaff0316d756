// Asynchronous operations whose buffers stay: a thread of the library passes large tensors.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <future>
#include <memory>
#include <span>

#include "tests/process/board_fixture.h"

namespace tutti {
namespace {

using namespace testing;

constexpr size_t kLarge = 700'001;  // Passes the window several times.
const Options kStay{.buffers_stay = true};

// On one host, and on two with one and two ranks.
class PassingMesh : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  std::string run(const Trainer::Body& body) { return mesh_.run("job", GetParam(), body); }
  std::vector<Trainer> start(const Trainer::Body& body) {
    return mesh_.start("job" + std::to_string(jobs_++), GetParam(), body);
  }

  SharedCounters signals_;
  int jobs_ = 0;
  TestMesh mesh_{static_cast<int>(GetParam().size())};
};

void check_ramp(std::span<const float> tensor, float base, float slope) {
  for (size_t i = 0; i < tensor.size(); ++i)
    check(tensor[i] == base + slope * static_cast<float>(i % 100), "a right sum");
}

// As DDP does: many are begun before the first is waited for, large and small, of all kinds.
TEST_P(PassingMesh, ManyUnderWayKeepTheirOrder) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              for (int round = 0; round < 2; ++round) {
                std::deque<Part> parts;
                for (size_t i = 0; i < 24; ++i) {
                  const Collective collective = kEveryCollective[i % std::size(kEveryCollective)];
                  const size_t count = i % 3 == 0 ? 50 + i : 60'000 * (1 + i % 5) + i;
                  parts.emplace_back(
                      group, Task{collective, Dtype::f32, Op::sum, count, Memory::ordinary,
                                  i % 7 == 6 ? Way::by_three : Way::passing, i % 2 == 0, ""});
                  parts.back().begin();
                }
                std::ranges::for_each(parts, [](Part& part) { part.end(); });
              }
            }),
            "");
}

constexpr const char* kStrategies[] = {"auto", "ring", "centralized", "tree:2"};

// Large enough to pass each rank's window more than once.
TEST_P(PassingMesh, BlocksOfEveryKindOfCall) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              size_t calls = 0;
              for (const Collective collective : kEveryCollective)
                for (const Way way : {Way::blocking, Way::by_three})
                  for (const Memory memory : {Memory::ordinary, Memory::by_rank})
                    for (const bool in_place : {false, true}) {
                      if (!has_blocks(collective)) continue;
                      Part part(group, Task{collective, Dtype::f32, Op::mean, 240'001, memory, way,
                                            in_place, kStrategies[calls++ % 4]});
                      part.begin();
                      part.end();
                    }
            }),
            "");
}

TEST_P(PassingMesh, ListsArePassedWithoutACopy) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              const auto ranks = static_cast<float>(context.world_size);
              const float ranks_sum = ranks * (ranks - 1) / 2;
              const size_t before = shared_bytes();
              std::vector<std::vector<float>> tensors;
              for (const size_t count : {3u, 1'000'003u, 0u, 3'500'000u, 70'001u})
                tensors.push_back(ramp(count, static_cast<float>(context.rank)));
              std::vector<std::span<float>> spans(tensors.begin(), tensors.end());
              group.all_reduce_many_async(spans, sum, kStay).wait();
              for (const std::vector<float>& tensor : tensors) check_ramp(tensor, ranks_sum, ranks);
              // A rank that folds reads the windows of all ranks of its host.
              check(shared_bytes() - before < (size_t{26} << 20), "windows alone");
            }),
            "");
}

// The notification comes after the result is in the output; wait() may be called by all threads.
TEST_P(PassingMesh, AreWaitedForInEveryWay) {
  EXPECT_EQ(run([](const RankContext& context) {
              Group group = context.join();
              const auto ranks = static_cast<float>(context.world_size);
              std::vector<float> x = ramp(kLarge, 1);
              std::promise<void> told;
              Work work = group.all_reduce_async(std::span(x), sum, kStay);
              work.notify([&] { told.set_value(); });
              told.get_future().wait();
              check(work.done(), "done when told");
              check_ramp(x, ranks, ranks);
              std::vector<float> y = ramp(kLarge, 2);
              Work other = group.all_reduce_async(std::span(y), sum, kStay);
              while (!other.done()) std::this_thread::yield();
              check_ramp(y, 2 * ranks, ranks);
              other.wait();
            }),
            "");
}

constexpr std::chrono::milliseconds kShort{1'000};

Work start_in(Group& group, std::span<float> tensor, std::chrono::milliseconds timeout) {
  Options options = kStay;
  options.timeout = timeout;
  return group.all_reduce_async(tensor, sum, options);
}

TEST_P(PassingMesh, ALateRankIsNamedAtTheDeadline) {
  EXPECT_EQ(run([this](const RankContext& context) {
              Group group = context.join();
              std::vector<float> x(kLarge);
              if (context.rank == 1) signals_.wait_for(0, context.world_size - 1);
              Work work = start_in(group, x, kShort);
              const Error error = failure_of([&] { work.wait(); });
              check(error.code == TUTTI_DEADLINE_EXCEEDED && error.rank == 1, error.what());
              ++signals_[0];
              for (int i = 0; i < 3; ++i) check_works(group);
            }),
            "");
}

// It waits for its turn behind one that may last longer.
TEST_P(PassingMesh, OneBehindAnotherHasItsOwnDeadline) {
  EXPECT_EQ(run([this](const RankContext& context) {
              Group group = context.join();
              std::vector<float> x = ramp(kLarge, 1);
              std::vector<float> y(kLarge);
              if (context.rank == 1) signals_.wait_for(0, context.world_size - 1);
              Work first = start_in(group, x, std::chrono::seconds(60));
              Work second = start_in(group, y, kShort);
              const Error error = failure_of([&] { second.wait(); });
              check(error.code == TUTTI_DEADLINE_EXCEEDED && error.rank == 1, error.what());
              check(context.rank == 1 || !first.done(), "the first one still waits");
              ++signals_[0];
              first.wait();
              const auto ranks = static_cast<float>(context.world_size);
              check_ramp(x, ranks, ranks);
              for (int i = 0; i < 3; ++i) check_works(group);
            }),
            "");
}

TEST_P(PassingMesh, AWaitMayBeShorterThanTheOperation) {
  EXPECT_EQ(run([this](const RankContext& context) {
              Group group = context.join();
              std::vector<float> x = ramp(kLarge, 1);
              if (context.rank == 1) signals_.wait_for(0, context.world_size - 1);
              Work work = start_in(group, x, std::chrono::seconds(60));
              if (context.rank != 1)
                check(!work.wait_for(std::chrono::milliseconds(1)) && !work.done(), "not yet");
              ++signals_[0];
              work.wait();
              const auto ranks = static_cast<float>(context.world_size);
              check_ramp(x, ranks, ranks);
            }),
            "");
}

// The ranks themselves do a small one, whenever they wait: long after its timeout, and all at once.
TEST_P(PassingMesh, ASmallOneMayBeWaitedForLate) {
  EXPECT_EQ(
      run([](const RankContext& context) {
        Group group = context.join();
        const auto ranks = static_cast<float>(context.world_size);
        for (const bool polls : {false, true}) {
          std::vector<float> x = ramp(50'000, 1);
          std::vector<float> y = ramp(1, 1);
          std::vector<float> z(1);
          group.barrier();  // All start both within the timeout.
          Work first = start_in(group, x, kShort);
          Work second = start_in(group, y, kShort);
          // A receive that nobody answers lasts as long as it may.
          failure_of([&] { group.recv(std::span(z), TUTTI_ANY_RANK, 0, {.timeout = 2 * kShort}); });
          while (polls && !(first.done() && second.done())) std::this_thread::yield();
          first.wait();
          second.wait();
          check_ramp(x, ranks, ranks);
          check_ramp(y, ranks, ranks);
        }
        check_works(group);
      }),
      "");
}

// Memory whose use after unmap() ends the process.
class Mapped {
 public:
  Mapped()
      : memory_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
  }
  std::span<float> floats() const { return {static_cast<float*>(memory_), kCount}; }
  void unmap() const { check(mprotect(memory_, kBytes, PROT_NONE) == 0, "memory of no use"); }

 private:
  // More than a window between hosts holds, which a rank fills without the others.
  static constexpr size_t kCount = 3'000'001;
  static constexpr size_t kBytes = (kCount * sizeof(float) + 4095) / 4096 * 4096;
  void* const memory_;
};

// One under way and one behind it are left alone. The rest of the input never comes, so that the
// rank is named as one that hangs, and all join again.
TEST_P(PassingMesh, AFreedOneLeavesItsBuffersAlone) {
  EXPECT_EQ(run([this](const RankContext& context) {
              {
                Group group = context.join();
                const Mapped one;
                const Mapped two;
                const Mapped own;
                if (context.rank == 0) {
                  start_in(group, one.floats(), kShort);
                  start_in(group, two.floats(), kShort);
                  one.unmap();
                  two.unmap();
                  ++signals_[0];
                }
                signals_.wait_for(0, 1);
                const auto timeout = context.rank == 0 ? std::chrono::seconds(60) : kShort;
                const Error error =
                    failure_of([&] { start_in(group, own.floats(), timeout).wait(); });
                check(error.code == TUTTI_DEADLINE_EXCEEDED && error.rank == 0, error.what());
              }
              Group group = context.join();
              check_works(group);
            }),
            "");
}

TEST_P(PassingMesh, ARankThatLeavesEndsItsOwn) {
  EXPECT_EQ(run([this](const RankContext& context) {
              Group group = context.join();
              const Mapped mapped;
              if (context.rank == 1) signals_.wait_for(0, 1);
              if (context.rank != 0) {
                const Error error = failure_of([&] {
                  for (;;) group.all_reduce(mapped.floats());
                });
                // Or its worker, which ends with its last rank.
                check(error.rank == 0 || (error.rank < 0 && error.host == "a"), error.what());
                return;
              }
              {
                Work work = start_in(group, mapped.floats(), std::chrono::seconds(60));
                group.leave();
                const Error error = failure_of([&] { work.wait(); });
                check(error.code == TUTTI_CANCELLED, error.what());
              }
              mapped.unmap();
              ++signals_[0];
            }),
            "");
}

TEST_P(PassingMesh, ARankKilledMeanwhileIsNamed) {
  for (int round = 0; round < 8; ++round) {
    std::vector<Trainer> trainers = start([round](const RankContext& context) {
      Group group = context.join();
      check_works(group);
      if (context.rank == context.world_size - 1)
        signal_myself(SIGKILL, std::chrono::microseconds(round * 500));
      std::vector<float> x(kLarge);
      std::vector<float> y(kLarge);
      const Error error = failure_of([&] {
        for (;;) {
          Work behind = start_in(group, x, std::chrono::seconds(60));
          start_in(group, y, std::chrono::seconds(60)).wait();
          behind.wait();
        }
      });
      check(error.code == TUTTI_UNAVAILABLE && error.rank == context.world_size - 1, error.what());
    });
    EXPECT_EQ(trainers.back().wait(), "killed by signal 9");
    trainers.pop_back();
    EXPECT_EQ(TestMesh::wait(trainers), "") << "round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(, PassingMesh,
                         ::testing::Values(std::vector{2}, std::vector{3}, std::vector{1, 1},
                                           std::vector{2, 2}));

}  // namespace
}  // namespace tutti

// Every wait of a call obeys that call's deadline, and what fails by it names who is to blame. The
// deadlines here are short and the join's is a minute: a wait that is not the call's would be the
// join's. After the deadline these end within, and blame:
//
//   ranks that have not called                     0.27 s   each missing rank
//   a host that does not answer the leader         0.27 s   its worker
//   a leader that does not answer a host           0.42 s   its worker
//   this host's worker, stopped                    0.45 s   it; the connection is lost
//   this host's worker, without a core             2 s      what it answers
//   ranks that fold or pass a tensor               0.3 s    the rank that is behind
//   a free slot, with 256 operations under way     0.2 s    who has not ended the first of them
//   copying an ordinary tensor                     4 MiB    this rank
//   the first message to or from a rank            0.45 s   this host's worker
//   a message: receiver; sender                    0; 0.47  this host's worker, else the other rank
//   earlier messages to the same rank              0 s      nobody; the message is lost
//   the worker to map new memory of a GPU          0 s      this host's worker
//   tutti_subgroup, by the join's timeout          0.45 s   this host's worker
//   join: ranks; agent and worker                  0.45 s   the missing ranks; nobody
//   leave: GPUs that use the rank's memory         no deadline, but 2 s
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>

#include "tests/process/board_fixture.h"
#include "tests/support/proc_counters.h"

namespace tutti {
namespace {

using namespace testing;
using namespace std::chrono_literals;

constexpr auto kTimeout = 1'000ms;
// Less than the join's timeout; by rights half a second, but the machine may be busy.
constexpr auto kSlack = 20s;

// The error of a call that must fail by its deadline.
Error late_failure_of(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  const Error error = failure_of(call);
  check(error.code == TUTTI_DEADLINE_EXCEEDED, error.what());
  check(std::chrono::steady_clock::now() - begin < kTimeout + kSlack, "in time");
  return error;
}

tutti_options options_with(std::chrono::milliseconds timeout) {
  tutti_options options = tutti_defaults();
  options.timeout_ms = static_cast<int32_t>(timeout.count());
  return options;
}

class Waits : public TwoHostsTest {
 protected:
  // Runs ranks 0 and 1, one a host, while the worker of host b is stopped; `before`, if there is
  // one, while it still runs.
  void run_without_worker_of_b(const Trainer::Body& body, const Trainer::Body& before = {}) {
    const SharedCounters signals;
    std::vector<Trainer> trainers = mesh_.start("job", {1, 1}, [&](const RankContext& context) {
      body_with(signals, context, body, before);
    });
    for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "ready");
    const auto worker = static_cast<pid_t>(worker_report(mesh_, 1, "job").pid());
    ASSERT_GT(worker, 0);
    kill(worker, SIGSTOP);
    signals[0] = 1;
    EXPECT_EQ(TestMesh::wait(trainers), "");
    kill(worker, SIGCONT);
  }

  Group* group_ = nullptr;  // In a trainer.

 private:
  void body_with(const SharedCounters& signals, const RankContext& context,
                 const Trainer::Body& body, const Trainer::Body& before) {
    Group group = context.join();
    group_ = &group;
    check_works(group);
    if (before) before(context);
    write_line("ready");
    signals.wait_for(0, 1);
    body(context);
  }
};

void check_blames_worker_of_b(const Error& error) {
  check_contains(error, "the worker of");
  check_contains(error, "does not answer");
  check(error.rank == -1 && error.host == "b", "the worker is to blame, and no rank");
}

TEST_F(Waits, TheFirstMessageToARankWaitsForTheWorkerUntilItsOwnDeadline) {
  run_without_worker_of_b([this](const RankContext& context) {
    float x = 0;
    const tutti_options options = options_with(kTimeout);
    check_blames_worker_of_b(late_failure_of([&] {
      Error::check(
          tutti_send(group_->get(), &x, 1, TUTTI_F32, 1 - context.rank, 0, &options, nullptr));
    }));
  });
}

TEST_F(Waits, TheFirstReceiveFromARankWaitsForTheWorkerUntilItsOwnDeadline) {
  run_without_worker_of_b([this](const RankContext& context) {
    float x = 0;
    const tutti_options options = options_with(kTimeout);
    const Error error = late_failure_of([&] {
      Error::check(tutti_recv(group_->get(), &x, 1, TUTTI_F32, context.rank == 1 ? 0 : -1, 0,
                              &options, nullptr));
    });
    if (context.rank == 1) check_blames_worker_of_b(error);
    check(error.rank == -1, "no rank is to blame");
  });
}

// Channels are there, so that the worker is not asked for one.
TEST_F(Waits, AReceiveNamesTheWorkerOfThisHostWhichDoesNotRun) {
  float x = 0;
  const auto receive = [&](const tutti_options* options) {
    Error::check(tutti_recv(group_->get(), &x, 1, TUTTI_F32, 0, 0, options, nullptr));
  };
  const auto make_channel = [&](const RankContext& context) {
    if (context.rank == 1) return receive(nullptr);
    Error::check(tutti_send(group_->get(), &x, 1, TUTTI_F32, 1, 0, nullptr, nullptr));
  };
  run_without_worker_of_b(
      [&](const RankContext& context) {
        if (context.rank == 0) return;
        const tutti_options options = options_with(kTimeout);
        check_blames_worker_of_b(late_failure_of([&] { receive(&options); }));
      },
      make_channel);
}

TEST_F(Waits, ACallBeyondTheMostUnderWayNamesTheWorkerOfThisHostWhichDoesNotRun) {
  run_without_worker_of_b([this](const RankContext& context) {
    if (context.rank == 0) return;
    constexpr int kMostUnderWay = 256;
    std::vector<float> x(kMostUnderWay + 1, 1.0f);
    std::vector<Work> works;
    for (int i = 0; i < kMostUnderWay; ++i)
      works.push_back(group_->all_reduce_async(std::span(&x[i], 1)));
    check_blames_worker_of_b(late_failure_of([&] {
      group_->all_reduce_async(std::span(&x[kMostUnderWay], 1), sum, {.timeout = kTimeout});
    }));
  });
}

// The rank that is absent has not taken its slots, so the others run out of them.
TEST_F(Waits, ACallBeyondTheMostUnderWayFailsByItsOwnDeadlineAndLosesNothing) {
  constexpr int kMostUnderWay = 256;
  EXPECT_EQ(run({2, 1},
                [](const RankContext& context) {
                  Group group = context.join();
                  check_works(group);
                  const auto start = [&](float& x) {
                    return group.all_reduce_async(std::span(&x, 1), sum, {.timeout = kTimeout});
                  };
                  const auto check_names_absent = [](const Error& error) {
                    check(error.code == TUTTI_DEADLINE_EXCEEDED, error.what());
                    check(error.rank == 1 && error.host == "a", error.what());
                    check_contains(error, "rank 1 (host a");
                  };
                  if (context.rank == 1) poll(nullptr, 0, 4'000);  // Absent for all deadlines.
                  std::vector<float> x(kMostUnderWay + 1, 1.0f);
                  std::vector<Work> works;
                  for (int i = 0; i < kMostUnderWay - 1; ++i) works.push_back(start(x[i]));
                  if (context.rank == 0) {
                    // check_works() has made one call, which all ranks have ended.
                    works.push_back(start(x[kMostUnderWay - 1]));
                    check_names_absent(late_failure_of([&] { start(x[kMostUnderWay]).wait(); }));
                  }
                  for (Work& work : works) check_names_absent(failure_of([&] { work.wait(); }));
                  if (context.rank != 0)
                    for (int i = kMostUnderWay - 1; i <= kMostUnderWay; ++i)
                      failure_of([&] { start(x[i]).wait(); });
                  check_works(group);
                }),
            "");
}

// All ranks are there; only their copying takes longer than the call may.
TEST_F(Waits, CopyingAWholeTensorCountsAndKeepsTheGroupUsable) {
  constexpr size_t kCount = size_t{32} << 20;
  EXPECT_EQ(run({2, 0},
                [](const RankContext& context) {
                  Group group = context.join();
                  check_works(group);
                  std::vector<uint8_t> in(kCount);
                  std::vector<uint8_t> out(2 * kCount);
                  const Error error = late_failure_of([&] {
                    const tutti_options options = options_with(1ms);
                    const size_t counts[] = {kCount, kCount};  // Such tensors pass no window.
                    Error::check(tutti_all_gather_v(group.get(), in.data(), out.data(), counts,
                                                    TUTTI_U8, &options, nullptr));
                  });
                  check_contains(error, "to copy the tensor to shared memory took all of the 1 ms");
                  check_works(group);
                }),
            "");
}

TEST_F(Waits, CopyingThroughAWindowCounts) {
  constexpr size_t kCount = size_t{32} << 20;
  EXPECT_EQ(run({2, 0},
                [](const RankContext& context) {
                  Group group = context.join();
                  check_works(group);
                  std::vector<float> x(kCount, 1.0f);
                  const Error error = late_failure_of(
                      [&] { group.all_reduce(std::span(x), sum, {.timeout = 1ms}); });
                  check_contains(error, "all_reduce #1 timed out after 1 ms");
                }),
            "");
}

}  // namespace
}  // namespace tutti

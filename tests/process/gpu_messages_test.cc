// Messages from and to the memory of GPUs, with and without streams, on one host and over two.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "tests/process/gpu_fixture.h"
#include "tests/support/await.h"

namespace tutti {
namespace {

using namespace testing;

// Elements around what one broadcast and one part of a message carry.
constexpr std::array<size_t, 6> kCounts = {1, 1018, 1019, 5000, 1 << 20, 3'000'001};

class GpuMessages : public GpuMesh {};

INSTANTIATE_TEST_SUITE_P(Layouts, GpuMessages,
                         ::testing::Values(std::vector{2}, std::vector{4}, std::vector{1, 1},
                                           std::vector{3, 2}));

// The ranks in a ring.
int next_of(const RankContext& context) { return (context.rank + 1) % context.world_size; }
int previous_of(const RankContext& context) {
  return (context.rank + context.world_size - 1) % context.world_size;
}

tutti_code send(CGroup& group, const void* in, size_t count, int to, uint64_t tag = 0,
                const tutti_options* options = nullptr, tutti_work** work = nullptr) {
  return tutti_send(group.get(), in, count, TUTTI_F32, to, tag, options, work);
}
tutti_code receive(CGroup& group, void* out, size_t count, int from, uint64_t tag = 0,
                   const tutti_options* options = nullptr, tutti_work** work = nullptr) {
  return tutti_recv(group.get(), out, count, TUTTI_F32, from, tag, options, work);
}
void finish(tutti_work* work) {
  CGroup::expect(tutti_work_wait(work, -1));
  tutti_work_free(work);
}
void finish(tutti_work* work, tutti_code code, const std::string& part) {
  check_refused(tutti_work_wait(work, 30'000), code, part);
  tutti_work_free(work);
}
// Before a rank leaves: others may still be at work.
void await_all(CGroup& group) { CGroup::expect(tutti_barrier(group.get(), nullptr, nullptr)); }
// The first message has the worker open the GPU, which takes longer than a short deadline.
void open_gpu(CGroup& group, const RankContext& context, const GpuMemory& x) {
  constexpr uint64_t kTag = 99;
  tutti_work* sent = nullptr;
  CGroup::expect(send(group, x.data(), 10, next_of(context), kTag, nullptr, &sent));
  CGroup::expect(receive(group, x.data() + 2000, 10, previous_of(context), kTag));
  finish(sent);
}
tutti_options within(int timeout_ms, tutti_options options = tutti_defaults()) {
  options.timeout_ms = timeout_ms;
  return options;
}

TEST_P(GpuMessages, MessagesThatBlockAndThatDoNot) {
  EXPECT_EQ(
      run([](const RankContext& context) {
        const CudaProgram cuda(context.rank % 2);
        CGroup group(context);
        for (const size_t count : kCounts) {
          const GpuMemory in(cuda, count * 4), out(cuda, count * 4);
          const auto from = static_cast<float>(previous_of(context));
          for (int round = 0; round < 3; ++round) {
            const auto base = static_cast<float>(round);
            cuda.write(in.data(), ramp(count, base + static_cast<float>(context.rank)));
            cuda.write(out.data(), std::vector<float>(count, -1));
            tutti_work* sent = nullptr;
            CGroup::expect(send(group, in.data(), count, next_of(context), 7, nullptr, &sent));
            if (round == 0) {
              CGroup::expect(receive(group, out.data(), count, previous_of(context), 7));
            } else {
              tutti_work* received = nullptr;
              CGroup::expect(receive(group, out.data(), count,
                                     round == 1 ? -1 : previous_of(context), 7, nullptr,
                                     &received));
              CGroup::expect(tutti_work_wait(received, -1));
              check(tutti_work_source(received) == previous_of(context), "the sender");
              tutti_work_free(received);
            }
            check(cuda.read<float>(out.data(), count) == ramp(count, base + from), "a message");
            finish(sent);
          }
        }
      }),
      "");
}

// A program that runs ahead: its stream computes between messages.
TEST_P(GpuMessages, MessagesInTheOrderOfAStream) {
  EXPECT_EQ(
      run([](const RankContext& context) {
        const CudaProgram cuda(context.rank % 2);
        CGroup group(context);
        const size_t count = 100'000;
        const GpuMemory in(cuda, count * 4), out(cuda, count * 4);
        const cuda::Stream stream = cuda.stream();
        const tutti_options options = on_stream(stream);
        uint64_t* gate = cuda.pinned();
        const std::vector<float> late = ramp(count, 1 + static_cast<float>(context.rank));
        cuda.hold(stream, gate);
        cuda.expect(cuda.driver().memcpy_async(
            CudaProgram::address(in.data()), CudaProgram::address(late.data()), count * 4, stream));
        for (uint64_t tag = 0; tag < 10; ++tag) {
          CGroup::expect(send(group, in.data(), count, next_of(context), tag, &options));
          CGroup::expect(receive(group, out.data(), count, previous_of(context), tag, &options));
          all_reduce(group, out.data(), out.data(), count, &options);
        }
        std::atomic_ref(*gate).store(1);
        std::vector<float> sum = sum_of_ramps(count, context.world_size);
        for (float& value : sum) value += static_cast<float>(context.world_size);
        check(cuda.read<float>(out.data(), count, stream) == sum, "the sum of what came");
      }),
      "");
}

// A receive that the stream waits for does not hold up a send on another stream, nor the caller.
TEST_P(GpuMessages, AReceiveDoesNotHoldUpASend) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              const size_t count = 5000;
              const GpuMemory in(cuda, count * 4), out(cuda, count * 4);
              cuda.write(in.data(), ramp(count, static_cast<float>(context.rank)));
              const cuda::Stream one = cuda.stream(), other = cuda.stream();
              const tutti_options first = on_stream(one), second = on_stream(other);
              tutti_work* received = nullptr;
              CGroup::expect(
                  receive(group, out.data(), count, previous_of(context), 0, &first, &received));
              check(tutti_work_done(received) == 0, "nobody has sent");
              CGroup::expect(tutti_barrier(group.get(), nullptr, nullptr));
              tutti_work* sent = nullptr;
              CGroup::expect(send(group, in.data(), count, next_of(context), 0, &second, &sent));
              finish(sent);
              finish(received);
              check(cuda.read<float>(out.data(), count, one) ==
                        ramp(count, static_cast<float>(previous_of(context))),
                    "a message");
            }),
            "");
}

// Messages of one tag keep the order of their calls, wherever their tensors are.
TEST_P(GpuMessages, HostAndGpuMessagesKeepTheirOrder) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              const size_t count = 2000;
              const GpuMemory in(cuda, count * 4), out(cuda, count * 4);
              std::vector<float> host = ramp(count, 50);
              cuda.write(in.data(), ramp(count, static_cast<float>(context.rank)));
              const cuda::Stream stream = cuda.stream();
              const tutti_options options = on_stream(stream);
              uint64_t* gate = cuda.pinned();
              cuda.hold(stream, gate);
              CGroup::expect(send(group, in.data(), count, next_of(context), 0, &options));
              std::thread opens([gate] { std::atomic_ref(*gate).store(1); });
              tutti_work* sent = nullptr;
              CGroup::expect(send(group, host.data(), count, next_of(context), 0, nullptr, &sent));
              opens.join();
              std::vector<float> first(count);
              CGroup::expect(receive(group, first.data(), count, previous_of(context)));
              check(first == ramp(count, static_cast<float>(previous_of(context))), "from a GPU");
              CGroup::expect(receive(group, out.data(), count, previous_of(context)));
              check(cuda.read<float>(out.data(), count) == host, "to a GPU");
              finish(sent);
            }),
            "");
}

// The program reads beside the stream what it knows to be there.
TEST_P(GpuMessages, AMessageIsThereWhenAWaitReturns) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              const size_t count = 2000;
              const GpuMemory in(cuda, count * 4), out(cuda, count * 4);
              cuda.write(in.data(), ramp(count, static_cast<float>(context.rank)));
              cuda.write(out.data(), std::vector<float>(count, -1));
              const cuda::Stream stream = cuda.stream();
              const tutti_options options = on_stream(stream);
              tutti_work* sent = nullptr;
              CGroup::expect(send(group, in.data(), count, next_of(context), 0, nullptr, &sent));
              const Variable slow("FAKE_CUDA_SLOW_WRITES", "300");
              tutti_work* received = nullptr;
              CGroup::expect(
                  receive(group, out.data(), count, previous_of(context), 0, &options, &received));
              finish(received);
              check(cuda.read<float>(out.data(), count) ==
                        ramp(count, static_cast<float>(previous_of(context))),
                    "a message");
              finish(sent);
            }),
            "");
}

// ---- Refusals and failures ----

TEST_P(GpuMessages, MessagesThatAreWrongAreRefused) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(0);
              CGroup group(context);
              const GpuMemory x(cuda, 4000);
              std::vector<float> host(1000);
              const tutti_options options = on_stream(cuda.stream());
              check_refused(send(group, host.data(), 10, next_of(context), 0, &options),
                            TUTTI_INVALID_ARGUMENT, "not in the memory of a GPU");
              check_refused(receive(group, host.data(), 10, -1, 0, &options),
                            TUTTI_INVALID_ARGUMENT, "not in the memory of a GPU");
              tutti_work* sent = nullptr;
              CGroup::expect(send(group, x.data(), 20, next_of(context), 0, nullptr, &sent));
              check_refused(receive(group, x.data() + 400, 10, previous_of(context)),
                            TUTTI_FAILED_PRECONDITION, "f32[20]");
              finish(sent);
              CGroup::expect(send(group, x.data(), 0, next_of(context), 1, nullptr, &sent));
              CGroup::expect(receive(group, x.data(), 0, previous_of(context), 1));
              finish(sent);
            }),
            "");
}

// The stream goes on; the waiter is notified; otherwise the next call is.
TEST_P(GpuMessages, AMessageThatDoesNotComeReleasesTheStream) {
  EXPECT_EQ(
      run([](const RankContext& context) {
        const CudaProgram cuda(context.rank % 2);
        CGroup group(context);
        const GpuMemory x(cuda, 4000);
        all_reduce(group, x.data(), x.data(), 10);  // The worker opens its GPUs.
        const cuda::Stream stream = cuda.stream();
        tutti_options options = on_stream(stream);
        options.timeout_ms = 1000;
        tutti_work* work = nullptr;
        CGroup::expect(receive(group, x.data(), 10, previous_of(context), 0, &options, &work));
        check_refused(tutti_work_wait(work, -1), TUTTI_DEADLINE_EXCEEDED, "rank");
        tutti_work_free(work);
        cuda.synchronize(stream);
        CGroup::expect(receive(group, x.data(), 10, previous_of(context), 0, &options));
        cuda.synchronize(stream);
        check_refused(send(group, x.data(), 10, next_of(context)), TUTTI_DEADLINE_EXCEEDED, "rank");
        uint64_t* gate = cuda.pinned();
        cuda.hold(stream, gate);
        CGroup::expect(send(group, x.data(), 10, next_of(context), 0, &options, &work));
        check_refused(tutti_work_wait(work, -1), TUTTI_DEADLINE_EXCEEDED,
                      "the stream has not reached the message");
        tutti_work_free(work);
        std::atomic_ref(*gate).store(1);
        cuda.synchronize(stream);
      }),
      "");
}

TEST_P(GpuMessages, AMessageThatIsCopiedLateHasFailed) {
  if (!is_fake_under_test()) GTEST_SKIP() << "slows the fake driver down";
  EXPECT_EQ(
      run([](const RankContext& context) {
        const CudaProgram cuda(context.rank % 2);
        CGroup group(context);
        const GpuMemory x(cuda, 4000);
        const cuda::Stream stream = cuda.stream();
        const tutti_options options = within(2000, on_stream(stream));
        tutti_work *sent = nullptr, *received = nullptr;
        CGroup::expect(send(group, x.data(), 10, next_of(context), 0, nullptr, &sent));
        const Variable slow("FAKE_CUDA_SLOW_WRITES", "4000");
        CGroup::expect(receive(group, x.data(), 10, previous_of(context), 0, &options, &received));
        finish(received, TUTTI_DEADLINE_EXCEEDED, "has not copied the message");
        cuda.synchronize(stream);
        finish(sent);
        await_all(group);
      }),
      "");
}

// ---- Many messages at once ----

// How often a thread of this process has slept; -1: there is none of that name.
int64_t sleeps_of(const std::string& name) {
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(thread.path() / "status");
    bool is_it = false;
    for (std::string line; std::getline(file, line);) {
      is_it |= line == "Name:\t" + name;
      if (is_it && line.starts_with("voluntary_ctxt_switches:")) return std::stoll(line.substr(24));
    }
  }
  return -1;
}

// One rank: a thread of it is held by a receiver that does not come.
TEST_P(GpuMessages, ASendThatIsHeldUpHoldsUpNoOther) {
  EXPECT_EQ(run([this](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              const size_t count = 2000;
              const GpuMemory in(cuda, count * 4), out(cuda, count * 4);
              std::vector<float> host = ramp(count, 5);
              cuda.write(in.data(), ramp(count, 7));
              if (context.rank == 1) {
                CGroup::expect(receive(group, host.data(), 1, 0));
                arrived_.wait_for(0, 1);
                CGroup::expect(receive(group, host.data(), count, 0));
                check(host == ramp(count, 5), "the first");
                CGroup::expect(receive(group, host.data(), count, 0));
                check(host == ramp(count, 7), "the second");
              }
              if (context.rank != 0) return await_all(group);
              const tutti_options longer = within(20'000);
              CGroup::expect(send(group, host.data(), 1, 1));  // Makes the channel.
              std::string failure;
              std::jthread held([&] {
                pthread_setname_np(pthread_self(), "held");
                if (send(group, host.data(), count, 1, 0, &longer) != TUTTI_OK)
                  failure = tutti_last_error()->message;
              });
              check(await([] { return sleeps_of("held") >= 3; }), "it sleeps");
              tutti_work* sent = nullptr;
              CGroup::expect(send(group, in.data(), count, 1, 0, &longer, &sent));
              const cuda::Stream stream = cuda.stream();
              const tutti_options options = within(500, on_stream(stream));
              tutti_work* received = nullptr;
              CGroup::expect(receive(group, out.data(), count, 1, 0, &options, &received));
              const TimePoint began = Clock::now();
              cuda.synchronize(stream);
              const bool is_in_time = Clock::now() < began + Millis(10'000);
              ++arrived_[0];
              check(is_in_time, "the stream goes on by its deadline");
              held.join();
              check(failure.empty(), failure);
              finish(sent);
              finish(received, TUTTI_DEADLINE_EXCEEDED, "has sent no such message");
              await_all(group);
            }),
            "");
}

// A rank whose stream reaches a message to the next rank when it is asked to.
struct Late {
  explicit Late(const RankContext& context)
      : cuda(context.rank % 2), group(context), in(cuda, kBytes), out(cuda, kBytes) {
    cuda.write(in.data(), ramp(kCount, static_cast<float>(context.rank)));
    cuda.hold(stream, gate);
    const tutti_options options = within(60'000, on_stream(stream));
    CGroup::expect(send(group, in.data(), kCount, next_of(context), 0, &options, &sent));
  }
  Late(const Late&) = delete;
  Late& operator=(const Late&) = delete;
  ~Late() { std::atomic_ref(*gate).store(1); }  // Else no process could end.
  // The first message that the rank receives is the late one.
  void pass(const RankContext& context) {
    std::atomic_ref(*gate).store(1);
    CGroup::expect(receive(group, out.data(), kCount, previous_of(context)));
    check(cuda.read<float>(out.data(), kCount) ==
              ramp(kCount, static_cast<float>(previous_of(context))),
          "the late message");
    finish(sent);
    await_all(group);
  }

  static constexpr size_t kCount = 1000;
  static constexpr size_t kBytes = kCount * sizeof(float);
  const CudaProgram cuda;
  CGroup group;
  const GpuMemory in, out;
  const cuda::Stream stream = cuda.stream();
  uint64_t* const gate = cuda.pinned();
  tutti_work* sent = nullptr;
};

TEST_P(GpuMessages, WhatIsBehindALateMessageEndsByItsOwnTime) {
  EXPECT_EQ(run([](const RankContext& context) {
              Late late(context);
              const tutti_options options = within(100, on_stream(late.cuda.stream()));
              tutti_work* behind = nullptr;
              CGroup::expect(send(late.group, late.in.data(), Late::kCount, next_of(context), 0,
                                  &options, &behind));
              finish(behind, TUTTI_DEADLINE_EXCEEDED, "sent to that rank before");
              late.pass(context);
            }),
            "");
}

TEST_P(GpuMessages, AMessageOfTheHostDoesNotOvertakeALateOne) {
  EXPECT_EQ(run([](const RankContext& context) {
              Late late(context);
              const std::vector<float> host = ramp(Late::kCount, 50);
              const tutti_options options = within(100);
              tutti_work* behind = nullptr;
              check_refused(send(late.group, host.data(), Late::kCount, next_of(context), 0,
                                 &options, &behind),
                            TUTTI_DEADLINE_EXCEEDED, "earlier messages from GPU memory");
              late.pass(context);
            }),
            "");
}

TEST_P(GpuMessages, AMessageThatIsWaitedForCostsNothing) {
  EXPECT_EQ(
      run([](const RankContext& context) {
        const CudaProgram cuda(context.rank % 2);
        CGroup group(context);
        const GpuMemory x(cuda, 4000);
        open_gpu(group, context, x);
        const tutti_options options = within(2000, on_stream(cuda.stream()));
        tutti_work* work = nullptr;
        CGroup::expect(receive(group, x.data(), 10, previous_of(context), 0, &options, &work));
        finish(work, TUTTI_DEADLINE_EXCEEDED, "has sent no such message");
        const int64_t sleeps = sleeps_of("tutti-messages");
        check(sleeps > 0 && sleeps < 1000, std::to_string(sleeps) + " looks in 2 s");
        await_all(group);
      }),
      "");
}

// The message comes, and is taken; nobody wants it any more.
TEST_P(GpuMessages, AReceiveWhoseWorkIsFreedWritesNothing) {
  EXPECT_EQ(run([](const RankContext& context) {
              constexpr size_t kElements = 5000;
              const CudaProgram cuda(0);
              CGroup group(context);
              const GpuMemory data(cuda, kElements * 4);
              cuda.write(data.data(), ramp(kElements, static_cast<float>(context.rank)));
              if (context.rank == 0) {
                const GpuMemory next(cuda, kElements * 4);
                tutti_work* work = nullptr;
                CGroup::expect(receive(group, data.data(), kElements, 1, 0, nullptr, &work));
                tutti_work_free(work);
                await_all(group);
                CGroup::expect(receive(group, next.data(), kElements, 1, 1));
                check(cuda.read<float>(next.data(), kElements) == ramp(kElements, 1), "the other");
                check(cuda.read<float>(data.data(), kElements) == ramp(kElements, 0), "untouched");
              } else {
                await_all(group);
                for (const uint64_t tag : {0, 1})
                  if (context.rank == 1)
                    CGroup::expect(send(group, data.data(), kElements, 0, tag));
              }
              await_all(group);
            }),
            "");
}

TEST_P(GpuMessages, AForkedChildWaitsForNoMessage) {
  EXPECT_EQ(
      run([](const RankContext& context) {
        const CudaProgram cuda(context.rank % 2);
        CGroup group(context);
        const GpuMemory x(cuda, 4000);
        const tutti_options options = on_stream(cuda.stream());
        tutti_work* work = nullptr;
        CGroup::expect(receive(group, x.data(), 10, previous_of(context), 0, &options, &work));
        const pid_t child = fork();
        if (child == 0) {
          alarm(20);
          const bool is_refused = tutti_work_wait(work, -1) == TUTTI_FAILED_PRECONDITION;
          _exit(is_refused && tutti_work_done(work) == 1 ? 0 : 1);
        }
        int status = -1;
        check(waitpid(child, &status, 0) == child && status == 0, "the child is notified");
        tutti_work* sent = nullptr;
        CGroup::expect(send(group, x.data(), 10, next_of(context), 0, nullptr, &sent));
        finish(sent);
        finish(work);
        await_all(group);
      }),
      "");
}

// The call that finds its worker gone says what had failed before.
TEST_P(GpuMessages, AMessageReportsAnEarlierFailureThoughTheWorkerIsGone) {
  std::vector<Trainer> trainers = start([this](const RankContext& context) {
    const CudaProgram cuda(context.rank % 2);
    CGroup group(context);
    const GpuMemory x(cuda, 4000);
    std::vector<uint32_t> all(static_cast<size_t>(context.world_size));
    std::iota(all.begin(), all.end(), 0);
    tutti_group* part = nullptr;
    CGroup::expect(tutti_subgroup(group.get(), all.data(), all.size(), &part));
    const cuda::Stream stream = cuda.stream();
    open_gpu(group, context, x);
    const tutti_options options = within(100, on_stream(stream));
    CGroup::expect(receive(group, x.data(), 10, previous_of(context), 3, &options));
    cuda.synchronize(stream);
    CGroup::expect(tutti_barrier(part, nullptr, nullptr));
    write_line("failed");
    arrived_.wait_for(0, 1);
    while (tutti_barrier(part, nullptr, nullptr) == TUTTI_OK) continue;  // The worker is gone.
    check_refused(send(group, x.data(), 10, next_of(context)), TUTTI_DEADLINE_EXCEEDED, "(tag 3)");
    check(send(group, x.data(), 10, next_of(context)) == TUTTI_UNAVAILABLE, "it is notified once");
    tutti_group_free(part);
  });
  for (Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), "failed");
  const pid_t worker = worker_of(mesh_, 0);
  ASSERT_GT(worker, 0);
  kill(worker, SIGKILL);
  ++arrived_[0];
  EXPECT_EQ(TestMesh::wait(trainers), "");
}

TEST_P(GpuMessages, ADeathEndsAMessageByName) {
  std::vector<Trainer> trainers = start([](const RankContext& context) {
    const CudaProgram cuda(context.rank % 2);
    CGroup group(context);
    const int last = context.world_size - 1;
    const size_t count = 3'000'000;
    const GpuMemory x(cuda, count * 4);
    const cuda::Stream stream = cuda.stream();
    const tutti_options options = on_stream(stream);
    tutti_work* work = nullptr;
    if (context.rank != last)
      CGroup::expect(receive(group, x.data(), count, last, 0, &options, &work));
    write_line("started");
    if (context.rank == last) return cuda.hold(nullptr, cuda.pinned()), cuda.synchronize(nullptr);
    check_refused(tutti_work_wait(work, -1), TUTTI_UNAVAILABLE, "rank " + std::to_string(last));
    tutti_work_free(work);
    cuda.synchronize(stream);
  });
  for (Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), "started");
  trainers.back().kill(SIGKILL);
  for (size_t i = 0; i + 1 < trainers.size(); ++i) EXPECT_EQ(trainers[i].wait(), "");
}

}  // namespace
}  // namespace tutti

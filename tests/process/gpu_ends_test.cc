// What has ended for a program: no GPU of a worker touches its memory any more, and no stream of
// its own touches what the library gave back.
#include <csignal>
#include <fstream>

#include "tests/process/gpu_fixture.h"
#include "tests/support/await.h"
#include "tests/support/temporary_directory.h"

namespace tutti {
namespace {

using namespace testing;

// A tensor of ones on this rank's GPU.
struct Ones {
  explicit Ones(const RankContext& context)
      : cuda(context.rank % 2), memory(cuda, kCount * sizeof(float)), stream(cuda.stream()) {
    cuda.write(memory.data(), std::vector<float>(kCount, 1));
  }
  tutti_work* start(CGroup& group, int timeout_ms = 0) const {
    tutti_options options = on_stream(stream);
    if (timeout_ms != 0) options.timeout_ms = timeout_ms;
    tutti_work* work = nullptr;
    all_reduce(group, memory.data(), memory.data(), kCount, &options, &work);
    return work;
  }
  void check_all(float value, const char* what) const {
    check(cuda.read<float>(memory.data(), kCount) == std::vector<float>(kCount, value), what);
  }

  const CudaProgram cuda;
  const GpuMemory memory;
  const cuda::Stream stream;
};

class GpuEnds : public GpuMesh {};

// The stream of the rank has yet to see that the operation is done.
TEST_P(GpuEnds, AGroupThatIsFreedAfterItsWorkLeavesItsStreamsTheirWords) {
  EXPECT_EQ(run([](const RankContext& context) {
              const Variable slow("FAKE_CUDA_SLOW_WAITS", "100");
              const Ones ones(context);
              {
                CGroup group(context);
                tutti_work* work = ones.start(group);
                CGroup::expect(tutti_work_wait(work, -1));
                tutti_work_free(work);
              }
              ones.cuda.synchronize(ones.stream);
              ones.check_all(static_cast<float>(context.world_size), "a right sum");
            }),
            "");
}

TEST_P(GpuEnds, AGroupThatIsFreedWithoutAWaitLeavesItsStreamsTheirWords) {
  EXPECT_EQ(run([](const RankContext& context) {
              const Variable slow("FAKE_CUDA_SLOW_WAITS", "30");
              const Ones ones(context);
              {
                CGroup group(context);
                for (int i = 0; i < 5; ++i) tutti_work_free(ones.start(group));
              }
              ones.cuda.synchronize(ones.stream);
            }),
            "");
}

// Memory that a GPU uses is unpinned once all streams have passed, the program's own included.
TEST_P(GpuEnds, ALeaveDoesNotWaitForStreamsOfTheProgram) {
  EXPECT_EQ(run([](const RankContext& context) {
              const Ones ones(context);
              const cuda::Stream other = ones.cuda.stream();
              uint64_t* gate = ones.cuda.pinned();
              {
                CGroup group(context);
                tutti_work* work = ones.start(group);
                CGroup::expect(tutti_work_wait(work, -1));
                tutti_work_free(work);
                ones.cuda.synchronize(ones.stream);
                ones.cuda.hold(other, gate);
              }
              std::atomic_ref(*gate).store(1);
              ones.cuda.synchronize(other);
            }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, GpuEnds,
                         ::testing::Values(std::vector{1}, std::vector{3}, std::vector{2, 1}));

// Kernels of the workers take their time, and tell when they begin and end.
class Kernels {
 public:
  bool have_begun() const { return count('+') > 0; }
  bool have_ended() const { return count('-') == count('+'); }
  void await(bool (Kernels::*what)() const) const {
    check(tutti::await([&] { return (this->*what)(); }), "kernels begin and end");
  }

 private:
  ptrdiff_t count(char mark) const {
    std::ifstream file(path_);
    return std::count(std::istreambuf_iterator<char>(file), {}, mark);
  }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_ / "kernels";
  const Variable told_{"FAKE_CUDA_KERNELS", path_};
  const Variable slow_{"FAKE_CUDA_SLOW_KERNELS", "200"};
};
struct SlowKernels {
  const Kernels kernels;
};
class GpuSlowKernels : public SlowKernels, public GpuMesh {
 protected:
  void SetUp() override {
    if (!is_fake_under_test()) GTEST_SKIP() << "slows the fake driver down";
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, GpuSlowKernels,
                         ::testing::Values(std::vector{1}, std::vector{2}, std::vector{4}));

// The program uses its memory for something else as soon as it was notified, or has left.
TEST_P(GpuSlowKernels, MemoryOfEndedOperationsIsTouchedNoMore) {
  EXPECT_EQ(run([this](const RankContext& context) {
              const Ones ones(context);
              auto group = std::make_unique<CGroup>(context);
              tutti_work* work = ones.start(*group);
              kernels.await(&Kernels::have_begun);
              if (context.rank != 0)
                check_refused(tutti_work_wait(work, -1), TUTTI_UNAVAILABLE, "rank 0");
              group.reset();
              ones.cuda.write(ones.memory.data(), std::vector<float>(kCount, 7));
              kernels.await(&Kernels::have_ended);
              ones.check_all(7, "the memory is the program's");
              tutti_work_free(work);
              ones.cuda.synchronize(ones.stream);
            }),
            "");
}

// The same where the operation is too late, and the program waits in another way than for its work.
TEST_P(GpuSlowKernels, AStreamThatIsReleasedFindsItsMemoryUntouched) {
  EXPECT_EQ(run([this](const RankContext& context) {
              const Ones ones(context);
              CGroup group(context);
              const TimePoint began = Clock::now();
              tutti_work* work = ones.start(group, 100);
              ones.cuda.synchronize(ones.stream);
              // Later a GPU that hangs holds no stream: 450 ms after the deadline.
              const bool is_early = Clock::now() < began + Millis(500);
              ones.cuda.write(ones.memory.data(), std::vector<float>(kCount, 7));
              kernels.await(&Kernels::have_ended);
              if (is_early) ones.check_all(7, "the memory is the program's");
              tutti_work_wait(work, -1);
              tutti_work_free(work);
            }),
            "");
}

// The worker learns late of the end of its GPUs' work.
struct SlowCalls {
  const Variable slow{"FAKE_CUDA_SLOW_CALLS", "200"};
};
class GpuSlowCalls : public SlowCalls, public GpuMesh {
 protected:
  void SetUp() override {
    if (!is_fake_under_test()) GTEST_SKIP() << "slows the fake driver down";
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, GpuSlowCalls,
                         ::testing::Values(std::vector{2}, std::vector{4}, std::vector{2, 2}));

TEST_P(GpuSlowCalls, ALeaveFailsNothingThatHasEnded) {
  EXPECT_EQ(run([](const RankContext& context) {
              const Ones ones(context);
              auto group = std::make_unique<CGroup>(context);
              tutti_work* work = ones.start(*group);
              if (context.rank == 0)
                ones.cuda.synchronize(ones.stream);
              else
                CGroup::expect(tutti_work_wait(work, -1));
              group.reset();
              tutti_work_free(work);
              ones.cuda.synchronize(ones.stream);
              ones.check_all(static_cast<float>(context.world_size), "a right sum");
            }),
            "");
}

// A rank's process ends when its stream has passed.
TEST_P(GpuSlowCalls, TheEndOfAProcessFailsNothingThatHasEnded) {
  std::vector<Trainer> trainers = start([](const RankContext& context) {
    const Ones ones(context);
    CGroup group(context);
    tutti_work* work = ones.start(group);
    if (context.rank == 0) {
      ones.cuda.synchronize(ones.stream);
      write_line("ended");
      raise(SIGKILL);
    }
    CGroup::expect(tutti_work_wait(work, -1));
    tutti_work_free(work);
    ones.check_all(static_cast<float>(context.world_size), "a right sum");
  });
  EXPECT_EQ(trainers.front().read_line(), "ended");
  for (size_t i = 1; i < trainers.size(); ++i) EXPECT_EQ(trainers[i].wait(), "");
}

// The worker is busy with the memory of another rank when this one has some to forget.
struct SlowImports {
  const Variable slow{"FAKE_CUDA_SLOW_IMPORTS", "10000"};
};
class GpuSlowImports : public SlowImports, public GpuMesh {
 protected:
  void SetUp() override {
    if (!is_fake_under_test()) GTEST_SKIP() << "slows the fake driver down";
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, GpuSlowImports, ::testing::Values(std::vector{2}));

TEST_P(GpuSlowImports, AWorkerThatIsBusyHoldsNoStream) {
  EXPECT_EQ(run([](const RankContext& context) {
              const Ones ones(context);
              CGroup group(context);
              CGroup::expect(tutti_work_wait(ones.start(group), -1));
              {
                const GpuMemory freed(ones.cuda, 4000);
                all_reduce(group, freed.data(), freed.data(), kCount);
              }
              const GpuMemory again(ones.cuda, 4000);  // At the same address.
              all_reduce(group, again.data(), again.data(), kCount);
              const GpuMemory large(ones.cuda, context.rank == 0 ? 4000 : 40 << 20);
              void* last = context.rank == 0 ? ones.memory.data() : large.data();
              tutti_options options = on_stream(ones.stream);
              options.timeout_ms = 500;
              const TimePoint began = Clock::now();
              const tutti_code started = tutti_all_reduce(group.get(), last, last, kCount,
                                                          TUTTI_F32, TUTTI_SUM, &options, nullptr);
              ones.cuda.synchronize(ones.stream);
              if (context.rank != 0) return;
              CGroup::expect(started);
              check(Clock::now() < began + Millis(6000), "the stream goes on by the deadline");
            }),
            "");
}

// A worker that does nothing any more holds neither its trainers nor their streams.
TEST_P(GpuSlowCalls, AWorkerThatIsStoppedHoldsNobody) {
  std::vector<Trainer> trainers = start([this](const RankContext& context) {
    const Ones ones(context);
    {
      CGroup group(context);
      tutti_work_free(ones.start(group));
      ones.cuda.synchronize(ones.stream);
      write_line("works");
      arrived_.wait_for(0, 1);
      tutti_work* work = ones.start(group, 500);
      const tutti_code ended = tutti_work_wait(work, -1);
      const std::string why = tutti_last_error()->message;
      const bool is_late =
          ended == TUTTI_DEADLINE_EXCEEDED && why.find("join again") != std::string::npos;
      const bool others_gave_up =
          ended == TUTTI_UNAVAILABLE && why.find(" is gone") != std::string::npos;
      check(is_late || others_gave_up, "it fails by name, not: " + why);
      tutti_work_free(work);
    }
    ones.cuda.synchronize(ones.stream);
  });
  for (Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), "works");
  const pid_t worker = worker_of(mesh_, 0);
  ASSERT_GT(worker, 0);
  kill(worker, SIGSTOP);
  ++arrived_[0];
  EXPECT_EQ(TestMesh::wait(trainers), "");
  kill(worker, SIGCONT);
}

// Nor does one whose memory the worker has yet to be offered.
TEST_P(GpuSlowCalls, AWorkerThatIsStoppedHoldsNoCallWithNewMemory) {
  std::vector<Trainer> trainers = start([this](const RankContext& context) {
    const Ones ones(context), others(context);
    CGroup group(context);
    tutti_work_free(ones.start(group));
    ones.cuda.synchronize(ones.stream);
    write_line("works");
    arrived_.wait_for(0, 1);
    tutti_options options = on_stream(others.stream);
    options.timeout_ms = 500;
    const TimePoint began = Clock::now();
    void* memory = others.memory.data();
    check_refused(tutti_all_reduce(group.get(), memory, memory, kCount, TUTTI_F32, TUTTI_SUM,
                                   &options, nullptr),
                  TUTTI_DEADLINE_EXCEEDED, "the worker of job");
    check(Clock::now() < began + Millis(30'000), "it does not wait for the group's timeout");
  });
  for (Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), "works");
  std::vector<pid_t> workers;
  for (size_t host = 0; host < GetParam().size(); ++host)
    workers.push_back(worker_of(mesh_, static_cast<int>(host)));
  for (const pid_t worker : workers) kill(worker, SIGSTOP);
  ++arrived_[0];
  EXPECT_EQ(TestMesh::wait(trainers), "");
  for (const pid_t worker : workers) kill(worker, SIGCONT);
}

}  // namespace
}  // namespace tutti

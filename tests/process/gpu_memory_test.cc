// What workers hold of GPUs, and for how long, through real agents and workers over the fake
// driver.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <list>

#include "tests/process/gpu_fixture.h"
#include "tests/support/await.h"
#include "tests/support/temporary_directory.h"

namespace tutti {
namespace {

using namespace testing;

// Names the file of processes whose GPUs hang, before the mesh starts.
struct HangingGpus {
  void hang(pid_t process) const { std::ofstream(file, std::ios::app) << process << std::endl; }

  const TemporaryDirectory directory;
  const std::string file = directory / "hang";
  const Variable named{"FAKE_CUDA_HANG", file};
};

class GpuWorkers : public HangingGpus, public GpuMesh {
 protected:
  void SetUp() override {
    if (!is_fake_under_test()) GTEST_SKIP() << "needs what only the fake driver does";
  }
};

INSTANTIATE_TEST_SUITE_P(Layouts, GpuWorkers, ::testing::Values(std::vector{2}, std::vector{1, 1}));

// What torch's empty_cache() gives back is free then, though its addresses are not used again.
TEST_P(GpuWorkers, MemoryThatAProgramFreesIsUnmapped) {
  std::vector<Trainer> trainers = start([this](const RankContext& context) {
    const CudaProgram cuda(context.rank % 2);
    CGroup group(context);
    const GpuMemory kept(cuda, kCount * 4);
    {
      std::list<GpuMemory> freed;
      for (int i = 0; i < 5; ++i) {
        freed.emplace_back(cuda, kCount * 4);
        all_reduce(group, freed.back().data(), freed.back().data(), kCount);
      }
      write_line("has five pieces");
      arrived_.wait_for(0, 1);
    }
    for (float stop = 0; stop == 0;) {  // Until all know that one shall.
      cuda.write(kept.data(), std::vector<float>{static_cast<float>(arrived_[1])});
      all_reduce(group, kept.data(), kept.data(), 1);
      stop = cuda.read<float>(kept.data(), 1)[0];
    }
  });
  for (const Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), "has five pieces");
  const pid_t process = worker_of(mesh_, 0);
  const int ranks_here = GetParam().front();
  const int own = std::min(ranks_here, 2);  // A page of the worker's on each GPU.
  EXPECT_EQ(gpu_descriptors(process), 5 * ranks_here + own);
  ++arrived_[0];
  await([&] { return gpu_descriptors(process) <= ranks_here + own; });
  EXPECT_EQ(gpu_descriptors(process), ranks_here + own);
  ++arrived_[1];
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.log_tails();
}

// A rank must not have a GPU opened that it does not use.
class GpusApart : public NoPeers, public GpuMesh {};
INSTANTIATE_TEST_SUITE_P(Layouts, GpusApart, ::testing::Values(std::vector{2}));

TEST_P(GpusApart, ACallWithoutElementsIsForTheGpuOfItsStream) {
  if (!is_fake_under_test()) GTEST_SKIP() << "needs two GPUs";
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(1);
              CGroup group(context);
              const std::vector<size_t> none(2);
              // The default stream is that of the context that is current.
              const cuda::Stream stream = context.rank == 0 ? cuda.stream() : nullptr;
              const tutti_options options = on_stream(stream);
              CGroup::expect(tutti_all_gather_v(group.get(), nullptr, nullptr, none.data(),
                                                TUTTI_F32, &options, nullptr));
              cuda.synchronize(stream);
              const GpuMemory x(cuda, 40);
              cuda.write(x.data(), ramp(10, static_cast<float>(context.rank)));
              all_reduce(group, x.data(), x.data(), 10);
              check(cuda.read<float>(x.data(), 10) == sum_of_ramps(10, 2), "a right sum");
            }),
            "");
}

// The worker's own thread does not wait for the GPU, nor does its end.
TEST_P(GpuWorkers, AGpuThatHangsHoldsUpNeitherTheWorkerNorItsEnd) {
  std::vector<Trainer> trainers = start([this](const RankContext& context) {
    const CudaProgram cuda(context.rank % 2);
    CGroup group(context);
    const GpuMemory x(cuda, kCount * 4);
    all_reduce(group, x.data(), x.data(), kCount);
    write_line("works");
    arrived_.wait_for(0, 1);
    tutti_options options = tutti_defaults();
    options.timeout_ms = 1000;
    check_refused(tutti_all_reduce(group.get(), x.data(), x.data(), kCount, TUTTI_F32, TUTTI_SUM,
                                   &options, nullptr),
                  TUTTI_DEADLINE_EXCEEDED, "");
    write_line("was notified");
    arrived_.wait_for(1, 1);
  });
  for (const Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), "works");
  const pid_t hung = worker_of(mesh_, 0);
  ASSERT_GT(hung, 0);
  hang(hung);
  ++arrived_[0];
  for (const Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), "was notified");
  EXPECT_EQ(worker_of(mesh_, 0), hung);  // It answers.
  kill(hung, SIGTERM);
  while (kill(hung, 0) == 0) sched_yield();
  ++arrived_[1];
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_.log_tails();
}

// The driver takes longer to make a context than a worker may be silent.
class GpuSlowContexts : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  void SetUp() override {
    if (!is_fake_under_test()) GTEST_SKIP() << "slows the fake driver down";
  }
  // Only the workers are slow.
  static CudaProgram program(const RankContext& context) {
    unsetenv("FAKE_CUDA_SLOW_CONTEXTS");
    return CudaProgram(context.rank % 2);
  }
  // In a new group of its own.
  static void all_reduce_alone(const CGroup& group, int rank, void* x, size_t count) {
    const auto own = static_cast<uint32_t>(rank);
    tutti_group* alone = nullptr;
    CGroup::expect(tutti_subgroup(group.get(), &own, 1, &alone));
    CGroup::expect(tutti_all_reduce(alone, x, x, count, TUTTI_F32, TUTTI_SUM, nullptr, nullptr));
    tutti_group_free(alone);
  }
  std::string run(const Trainer::Body& body) { return mesh_.run("job", GetParam(), body); }

  SharedCounters arrived_;
  const Variable driver_{"TUTTI_CUDA_DRIVER", driver_under_test()};
  const Variable slow_{"FAKE_CUDA_SLOW_CONTEXTS", "2000"};
  TestMesh mesh_{LocalMeshOptions{.hosts = static_cast<int>(GetParam().size()),
                                  .agent_flags = {"--silence-ms=400"}}};
};

class GpuSlowContextsOfHosts : public GpuSlowContexts {};
INSTANTIATE_TEST_SUITE_P(Layouts, GpuSlowContextsOfHosts,
                         ::testing::Values(std::vector{1, 1}, std::vector{2, 1}));

// One after the other: the worker of a host is idle meanwhile, or waits for the other one.
TEST_P(GpuSlowContextsOfHosts, AWorkerThatOpensAGpuIsNotLost) {
  EXPECT_EQ(run([this](const RankContext& context) {
              const CudaProgram cuda = program(context);
              CGroup group(context);
              const GpuMemory x(cuda, kCount * 4);
              cuda.write(x.data(), ramp(kCount, static_cast<float>(context.rank)));
              if (context.rank == 0) {
                all_reduce_alone(group, context.rank, x.data(), kCount);
                ++arrived_[0];
              }
              arrived_.wait_for(0, 1);
              all_reduce(group, x.data(), x.data(), kCount);
              check(cuda.read<float>(x.data(), kCount) == sum_of_ramps(kCount, context.world_size),
                    "a right sum");
            }),
            "");
}

class GpuSlowContextsOfAHost : public GpuSlowContexts {};
INSTANTIATE_TEST_SUITE_P(Layouts, GpuSlowContextsOfAHost, ::testing::Values(std::vector{2}));

// The worker answers what it asks while the other one's GPU is opened.
TEST_P(GpuSlowContextsOfAHost, ARankWithoutGpusGoesOn) {
  EXPECT_EQ(run([this](const RankContext& context) {
              constexpr int kGroups = 50;
              CGroup group(context);
              float number = 1;
              if (context.rank == 0) {
                const CudaProgram cuda = program(context);
                const GpuMemory x(cuda, sizeof(number));
                ++arrived_[0];
                all_reduce_alone(group, 0, x.data(), 1);
                check(arrived_[1] == kGroups, "the other rank did not wait");
              } else {
                arrived_.wait_for(0, 1);
                for (; arrived_[1] < kGroups; ++arrived_[1]) all_reduce_alone(group, 1, &number, 1);
              }
              all_reduce(group, &number, &number, 1);
              check(number == 2, "a right sum");
            }),
            "");
}

// The job's end does not wait for it.
TEST_P(GpuSlowContextsOfAHost, ARankThatDiesWhileItsGpuIsOpenedEndsTheEpoch) {
  std::vector<Trainer> trainers =
      mesh_.start("job", GetParam(), [this](const RankContext& context) {
        CGroup group(context);
        if (context.rank == 0) {
          const CudaProgram cuda = program(context);
          const GpuMemory x(cuda, 4);
          std::thread([this] {
            arrived_.wait_for(0, 1);
            raise(SIGKILL);
          }).detach();
          ++arrived_[1];
          all_reduce(group, x.data(), x.data(), 1);
        }
        arrived_.wait_for(1, 1);
        ++arrived_[0];
        float number = 1;
        check_refused(tutti_all_reduce(group.get(), &number, &number, 1, TUTTI_F32, TUTTI_SUM,
                                       nullptr, nullptr),
                      TUTTI_UNAVAILABLE, "rank 0");
      });
  trainers[0].wait();
  EXPECT_EQ(trainers[1].wait(), "") << mesh_.log_tails();
}

}  // namespace
}  // namespace tutti

// Tensors in GPU memory that the worker cannot map, through real agents and workers.
#include "tests/process/gpu_fixture.h"
#include "tests/support/await.h"

namespace tutti {
namespace {

using namespace testing;

// The worker can map no memory of a rank by a handle of the driver's.
struct NothingIsMapped {
  const Variable refused{"FAKE_CUDA_REFUSES", "cuIpcOpenMemHandle_v2"};
};
class GpuStaging : public NothingIsMapped, public GpuMesh {
  void SetUp() override {
    if (!is_fake_under_test()) GTEST_SKIP() << "a real driver maps what it exports";
  }
};

INSTANTIATE_TEST_SUITE_P(Layouts, GpuStaging,
                         ::testing::Values(std::vector{1}, std::vector{2}, std::vector{1, 1},
                                           std::vector{3, 2}));

// Waits until the status of the mesh shows memory for staging.
bool status_tells(const std::string& address) {
  return await([&] {
    const auto status = admin_status(address, true, 5'000);
    if (!status.ok()) return false;
    for (const auto& agent : status->agents())
      for (const auto& worker : agent.workers())
        if (worker.gpu_staging_bytes() != 0) return true;
    return false;
  });
}

TEST_P(GpuStaging, EveryCollectiveIsExactAndTheStatusTells) {
  const std::string address = mesh_.host(0).address;
  const auto tells = [&] { check(status_tells(address), "the status says so"); };
  EXPECT_EQ(run([&](const RankContext& context) { check_values(context, tells); }), "");
}

// The host starts operations on several tensors before the stream reaches the first.
TEST_P(GpuStaging, TheOrderOfAStream) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              const size_t n = 5000;
              const GpuMemory x(cuda, n * 4), y(cuda, n * 4);
              cuda.write(x.data(), ramp(n, float(context.rank)));
              const cuda::Stream stream = cuda.stream();
              const tutti_options options = on_stream(stream);
              uint64_t* gate = cuda.pinned();
              cuda.hold(stream, gate);
              all_reduce(group, x.data(), y.data(), n, &options);
              all_reduce(group, y.data(), y.data(), n, &options);
              all_reduce(group, y.data(), x.data(), n, &options);
              std::atomic_ref(*gate).store(1);
              cuda.synchronize(stream);
              const auto ranks = float(context.world_size);
              std::vector<float> sum = sum_of_ramps(n, context.world_size);
              for (float& value : sum) value *= ranks * ranks;
              check(cuda.read<float>(x.data(), n) == sum, "a right sum of sums");
            }),
            "");
}

TEST_P(GpuStaging, TheResultIsThereWhenAWaitReturns) {
  EXPECT_EQ(run([](const RankContext& context) {
              const Variable slow("FAKE_CUDA_SLOW_WRITES", "100");
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              const size_t n = 5000;
              const GpuMemory x(cuda, n * 4);
              const tutti_options streamed = on_stream(cuda.stream());
              for (const tutti_options* options : {&streamed, (const tutti_options*)nullptr}) {
                cuda.write(x.data(), ramp(n, float(context.rank)));
                tutti_work* work = nullptr;
                all_reduce(group, x.data(), x.data(), n, options, &work);
                CGroup::expect(tutti_work_wait(work, -1));
                tutti_work_free(work);
                check(cuda.read<float>(x.data(), n) == sum_of_ramps(n, context.world_size),
                      "a right sum");
              }
            }),
            "");
}

TEST_P(GpuStaging, AResultThatIsCopiedLateIsAFailure) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              const size_t n = 5000;
              const GpuMemory x(cuda, n * 4);
              all_reduce(group, x.data(), x.data(), n);
              tutti_options options = on_stream(cuda.stream());
              options.timeout_ms = 2000;
              const Variable slow("FAKE_CUDA_SLOW_WRITES", "4000");
              tutti_work* work = nullptr;
              all_reduce(group, x.data(), x.data(), n, &options, &work);
              check_refused(tutti_work_wait(work, -1), TUTTI_DEADLINE_EXCEEDED,
                            "has not copied the result");
              tutti_work_free(work);
              cuda.synchronize(static_cast<cuda::Stream>(options.stream));
              unsetenv("FAKE_CUDA_SLOW_WRITES");
              cuda.write(x.data(), ramp(n, float(context.rank)));
              all_reduce(group, x.data(), x.data(), n);
              check(cuda.read<float>(x.data(), n) == sum_of_ramps(n, context.world_size),
                    "the group goes on");
            }),
            "");
}

// The tensors of one process lie on both, and pass through the same memory.
TEST_P(GpuStaging, TwoGpusOfAProcess) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram first(0);
              const size_t n = 5000;
              const GpuMemory x(first, n * 4);
              const cuda::Stream of_first = first.stream();
              const CudaProgram second(1);
              const GpuMemory y(second, n * 4);
              const cuda::Stream of_second = second.stream();
              CGroup group(context);
              const std::vector<float> sum = sum_of_ramps(n, context.world_size);
              const auto reduce = [&](const GpuMemory& in, const GpuMemory& out, cuda::Stream on) {
                const tutti_options streamed = on_stream(on);
                for (const tutti_options* options : {&streamed, (const tutti_options*)nullptr}) {
                  second.write(in.data(), ramp(n, float(context.rank)));
                  tutti_work* work = nullptr;
                  all_reduce(group, in.data(), out.data(), n, options, &work);
                  CGroup::expect(tutti_work_wait(work, -1));
                  tutti_work_free(work);
                  check(second.read<float>(out.data(), n) == sum, "a right sum");
                }
              };
              for (int round = 0; round < 3; ++round)
                for (const cuda::Stream stream : {of_first, of_second, cuda::Stream()})
                  for (const GpuMemory* in : {&x, &y})
                    for (const GpuMemory* out : {&x, &y}) reduce(*in, *out, stream);
            }),
            "");
}

class GpuStagedMesh : public GpuMesh {};

// Memory that the driver does not export, of one rank; the others' is mapped.
TEST_P(GpuStagedMesh, OneTensorThatIsNotExportedIsStaged) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              const size_t n = 700'000;
              auto* x = static_cast<std::byte*>(cuda.allocate_chunks(2, context.rank != 0));
              const GpuMemory y(cuda, n * 4);
              const tutti_options options = on_stream(cuda.stream());
              const std::vector<float> sum = sum_of_ramps(n, context.world_size);
              for (int round = 0; round < 5; ++round) {
                cuda.write(x + 400, ramp(n, float(context.rank)));
                all_reduce(group, x + 400, y.data(), n, &options);
                cuda.synchronize(static_cast<cuda::Stream>(options.stream));
                check(cuda.read<float>(y.data(), n) == sum, "out of hidden memory");
                all_reduce(group, x + 400, x + 400, n);
                check(cuda.read<float>(x + 400, n) == sum, "in place");
              }
            }),
            "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, GpuStagedMesh,
                         ::testing::Values(std::vector{1}, std::vector{2}, std::vector{1, 1}));

// ---- Failures and limits ----

// Blocks of operations that failed are freed once nobody uses them.
struct LittleStaging : NothingIsMapped {
  const Variable limit{"TUTTI_GPU_STAGING_BYTES", "300000"};
};
class GpuStagingLimit : public LittleStaging, public GpuMesh {
  void SetUp() override {
    if (!is_fake_under_test()) GTEST_SKIP() << "a real driver maps what it exports";
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, GpuStagingLimit,
                         ::testing::Values(std::vector{2}, std::vector{1, 1}));

TEST_P(GpuStagingLimit, ManyFailuresUseNothingUp) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(0);
              CGroup group(context);
              const GpuMemory x(cuda, 4000);
              const tutti_options options = on_stream(cuda.stream());
              for (int i = 0; i < 1000; ++i) {
                tutti_work* work = nullptr;
                all_reduce(group, x.data(), x.data(), context.rank == 0 ? 10 : 11, &options, &work);
                check_refused(tutti_work_wait(work, -1), TUTTI_FAILED_PRECONDITION, "disagree");
                tutti_work_free(work);
              }
              all_reduce(group, x.data(), x.data(), 10, &options);
              cuda.synchronize(static_cast<cuda::Stream>(options.stream));
            }),
            "");
}

TEST_P(GpuStagingLimit, WhatExceedsItIsRefusedByName) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(0);
              CGroup group(context);
              const GpuMemory x(cuda, 2 << 20), y(cuda, 200'000);
              cuda.write(y.data(), std::vector<float>(50'000, 1));
              for (int round = 0; round < 3; ++round) {
                check_refused(tutti_all_reduce(group.get(), x.data(), x.data(), 100'000, TUTTI_F32,
                                               TUTTI_SUM, nullptr, nullptr),
                              TUTTI_RESOURCE_EXHAUSTED, "gpu_staging_bytes");
                // A larger block takes the place of the smaller one.
                all_reduce(group, x.data(), x.data(), 10);
                all_reduce(group, y.data(), y.data(), 50'000);
              }
              const auto ranks = float(context.world_size);
              check(cuda.read<float>(y.data(), 1)[0] == ranks * ranks * ranks, "a right sum");
            }),
            "");
}

// Messages wait for memory of others, and no stream for a call that waits.
struct SmallStaging {
  const Variable limit{"TUTTI_GPU_STAGING_BYTES", "1048576"};
};
class GpuMessageStaging : public SmallStaging, public GpuMesh {
 protected:
  static constexpr size_t kHalf = (size_t{512} << 10) / sizeof(float);  // Of the limit.

  static tutti_work* receive(CGroup& group, void* out, size_t count, uint64_t tag,
                             const tutti_options& options) {
    tutti_work* work = nullptr;
    CGroup::expect(tutti_recv(group.get(), out, count, TUTTI_F32, 1, tag, &options, &work));
    return work;
  }
  static void send(CGroup& group, size_t count, uint64_t tag) {
    const std::vector<float> host(count, static_cast<float>(tag));
    CGroup::expect(
        tutti_send(group.get(), host.data(), count, TUTTI_F32, 0, tag, nullptr, nullptr));
  }
  static void finish(const CudaProgram& cuda, cuda::Stream stream, tutti_work* work) {
    cuda.synchronize(stream);
    CGroup::expect(tutti_work_wait(work, -1));
    tutti_work_free(work);
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, GpuMessageStaging,
                         ::testing::Values(std::vector{2}, std::vector{1, 1}));

TEST_P(GpuMessageStaging, WhatExceedsTheLimitIsRefusedAtOnceAndHoldsNoStream) {
  EXPECT_EQ(run([this](const RankContext& context) {
              CGroup group(context);
              if (context.rank == 1) {
                arrived_.wait_for(0, 1);
                for (const uint64_t tag : {5, 6}) send(group, 1000, tag);
                return;
              }
              const CudaProgram cuda(0);
              const GpuMemory x(cuda, 2 << 20);
              const cuda::Stream first = cuda.stream(), second = cuda.stream();
              tutti_work* const one = receive(group, x.data(), 1000, 5, on_stream(first));
              tutti_work* const other = receive(group, x.data() + 4096, 1000, 6, on_stream(second));
              const TimePoint began = Clock::now();
              check_refused(
                  tutti_recv(group.get(), x.data(), 4 * kHalf, TUTTI_F32, 1, 9, nullptr, nullptr),
                  TUTTI_RESOURCE_EXHAUSTED, "gpu_staging_bytes");
              check(Clock::now() < began + Millis(30'000), "it does not wait for its timeout");
              ++arrived_[0];
              finish(cuda, first, one);
              finish(cuda, second, other);
              check(cuda.read<float>(x.data() + 4096, 1000) == std::vector<float>(1000, 6), "6");
            }),
            "");
}

TEST_P(GpuMessageStaging, ACallWaitsForMemoryThatOthersUse) {
  EXPECT_EQ(run([this](const RankContext& context) {
              CGroup group(context);
              if (context.rank == 1) {
                arrived_.wait_for(0, 1);
                for (const uint64_t tag : {5, 6}) send(group, kHalf, tag);
                return send(group, 2 * kHalf, 7);
              }
              const CudaProgram cuda(0);
              const GpuMemory x(cuda, 2 << 20), y(cuda, 1 << 20);
              const cuda::Stream first = cuda.stream(), second = cuda.stream();
              tutti_work* const one = receive(group, x.data(), kHalf, 5, on_stream(first));
              tutti_work* const other =
                  receive(group, x.data() + (1 << 20), kHalf, 6, on_stream(second));
              ++arrived_[0];
              CGroup::expect(
                  tutti_recv(group.get(), y.data(), 2 * kHalf, TUTTI_F32, 1, 7, nullptr, nullptr));
              check(cuda.read<float>(y.data(), 2 * kHalf) == std::vector<float>(2 * kHalf, 7), "7");
              finish(cuda, first, one);
              finish(cuda, second, other);
            }),
            "");
}

// A segment that the program has filled.
struct SmallSegment : NothingIsMapped {
  const Variable limit{"TUTTI_SEGMENT_BYTES", "8388608"};
};
class GpuSmallSegment : public SmallSegment, public GpuMesh {
  void SetUp() override {
    if (!is_fake_under_test()) GTEST_SKIP() << "a real driver maps what it exports";
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, GpuSmallSegment,
                         ::testing::Values(std::vector{2}, std::vector{1, 1}));

TEST_P(GpuSmallSegment, MemoryForStagingThatIsNotUsedMakesRoom) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(0);
              CGroup group(context);
              const GpuMemory x(cuda, 400'000);
              cuda.write(x.data(), std::vector<float>(100'000, 1));
              all_reduce(group, x.data(), x.data(), 100'000);
              for (size_t bytes = 1 << 20; bytes >= 64; bytes /= 2)
                while (tutti_alloc(group.get(), bytes) != nullptr) continue;
              tutti_options options = tutti_defaults();
              options.timeout_ms = 5000;
              all_reduce(group, x.data(), x.data(), 10, &options);
              const auto ranks = float(context.world_size);
              check(cuda.read<float>(x.data(), 1)[0] == ranks * ranks, "a right sum");
            }),
            "");
}

struct OneRank {
  const Variable limit{"TUTTI_GPU_RANKS", "1"};
};
class GpuRanksLimit : public OneRank, public GpuMesh {};
INSTANTIATE_TEST_SUITE_P(Layouts, GpuRanksLimit, ::testing::Values(std::vector{2}));

TEST_P(GpuRanksLimit, RanksAGpuAreLimited) {
  if (!is_fake_under_test()) GTEST_SKIP() << "needs two GPUs";
  EXPECT_EQ(run([](const RankContext& context) {
              CGroup group(context);
              for (const bool share : {false, true}) {
                const CudaProgram cuda(share ? 0 : context.rank);
                const GpuMemory x(cuda, 4000);
                const tutti_code code = tutti_all_reduce(group.get(), x.data(), x.data(), 10,
                                                         TUTTI_F32, TUTTI_SUM, nullptr, nullptr);
                if (share) check_refused(code, TUTTI_RESOURCE_EXHAUSTED, "gpu_ranks");
                if (!share) CGroup::expect(code);
              }
            }),
            "");
}

// ---- GPUs that do not reach each other ----

class GpuNoPeers : public NoPeers, public GpuMesh {};
INSTANTIATE_TEST_SUITE_P(Layouts, GpuNoPeers, ::testing::Values(std::vector{2}));

TEST_P(GpuNoPeers, AreRefusedByName) {
  if (!is_fake_under_test()) GTEST_SKIP() << "needs two GPUs";
  EXPECT_EQ(run([](const RankContext& context) {
              CGroup group(context);
              for (const bool share : {true, false, true}) {
                const CudaProgram cuda(share ? 0 : context.rank);
                const GpuMemory x(cuda, 4000);
                const tutti_code code = tutti_all_reduce(group.get(), x.data(), x.data(), 10,
                                                         TUTTI_F32, TUTTI_SUM, nullptr, nullptr);
                if (share) CGroup::expect(code);
                if (!share) check_refused(code, TUTTI_UNAVAILABLE, "does not reach the memory of");
              }
            }),
            "");
}

}  // namespace
}  // namespace tutti

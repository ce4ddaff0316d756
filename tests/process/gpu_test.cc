// Operations on the memory of GPUs, through real agents and workers: memory, streams, refusals and
// failures. Values: tests/process/gpu_values_test.cc.
#include <dlfcn.h>

#include <filesystem>
#include <thread>

#include "tests/process/gpu_fixture.h"
#include "tests/support/await.h"

namespace tutti {
namespace {

using namespace testing;

INSTANTIATE_TEST_SUITE_P(Layouts, GpuMesh,
                         ::testing::Values(std::vector{1}, std::vector{2}, std::vector{4},
                                           std::vector{1, 1}, std::vector{3, 2}));

// Views at any offset, of memory that is freed and allocated again at the same address.
TEST_P(GpuMesh, MemoryIsKnownByItsBufferAndNotByItsAddress) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(0);
              CGroup group(context);
              for (int round = 0; round < 20; ++round) {
                const size_t offset = static_cast<size_t>(round) * 12;
                const GpuMemory memory(cuda, 1 << 20);
                std::byte* view = memory.data() + offset;
                cuda.write(view, ramp(1000, static_cast<float>(context.rank)));
                all_reduce(group, view, view, 1000);
                check(cuda.read<float>(view, 1000) == sum_of_ramps(1000, context.world_size),
                      "a right sum in round " + std::to_string(round));
              }
            }),
            "");
}

TEST_P(GpuMesh, ATensorOverManyChunks) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              auto* memory = static_cast<std::byte*>(cuda.allocate_chunks(40));
              const size_t count = (size_t{79} << 20) / 4;
              std::byte* view = memory + 4000;
              std::vector<float> values(count, 1);
              cuda.write(view, values);
              all_reduce(group, view, view, count);
              values.assign(count, static_cast<float>(context.world_size));
              check(cuda.read<float>(view, count) == values, "a right sum");
              const size_t within = size_t{2} << 20;
              cuda.write(memory + within, std::vector<float>(10, 2));
              all_reduce(group, memory + within, memory + within, 10);
              check(cuda.read<float>(memory + within, 10) ==
                        std::vector<float>(10, 2.0f * static_cast<float>(context.world_size)),
                    "a part of one chunk");
            }),
            "");
}

// A context belongs to a thread; calls come from any.
TEST_P(GpuMesh, CallsFromAThreadWithoutAContext) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(0);
              auto group = std::make_unique<CGroup>(context);
              const GpuMemory x(cuda, 4000);
              cuda.write(x.data(), std::vector<float>(1000, 1));
              std::string failed;
              std::thread([&] {
                try {
                  all_reduce(*group, x.data(), x.data(), 1000);
                  group.reset();
                } catch (const std::exception& error) {
                  failed = error.what();
                }
              }).join();
              check(failed.empty(), failed);
              check(cuda.read<float>(x.data(), 1)[0] == static_cast<float>(context.world_size),
                    "a right sum");
            }),
            "");
}

// Chunks that two offers hold are known to the worker by two addresses.
TEST_P(GpuMesh, TensorsThatOverlapInPartAreRefused) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(0);
              CGroup group(context);
              constexpr size_t kChunk = size_t{2} << 20;
              auto* base = static_cast<std::byte*>(cuda.allocate_chunks(4));
              for (const size_t first : {2, 1})
                all_reduce(group, base + first * kChunk, base + first * kChunk, 2 * kChunk / 4);
              const size_t count = kChunk / 4;
              const void* in = base + kChunk + kChunk / 2;
              void* out = base + 2 * kChunk;
              check_refused(tutti_all_reduce(group.get(), in, out, count, TUTTI_F32, TUTTI_SUM,
                                             nullptr, nullptr),
                            TUTTI_INVALID_ARGUMENT, "overlap in part");
              check_refused(tutti_all_reduce_many(group.get(), &in, &out, &count, 1, TUTTI_F32,
                                                  TUTTI_SUM, nullptr, nullptr),
                            TUTTI_INVALID_ARGUMENT, "overlap in part");
            }),
            "");
}

// On a GPU it would be a fault that ends the worker.
TEST_P(GpuMesh, TensorsThatAreNotAlignedAreRefused) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(0);
              CGroup group(context);
              const GpuMemory x(cuda, 4000);
              const void* in = x.data() + 1;
              void* out = x.data() + 2;
              const size_t count = 10;
              check_refused(tutti_all_reduce(group.get(), x.data() + 1, x.data() + 1, count,
                                             TUTTI_F32, TUTTI_SUM, nullptr, nullptr),
                            TUTTI_INVALID_ARGUMENT, "is not aligned for f32");
              check_refused(tutti_all_reduce_many(group.get(), &in, &out, &count, 1, TUTTI_F32,
                                                  TUTTI_SUM, nullptr, nullptr),
                            TUTTI_INVALID_ARGUMENT, "is not aligned for f32");
              CGroup::expect(tutti_all_reduce(group.get(), in, x.data() + 1, count, TUTTI_U8,
                                              TUTTI_SUM, nullptr, nullptr));
            }),
            "");
}

// The host runs ahead: it starts many operations before a stream reaches the first.
TEST_P(GpuMesh, AStreamKeepsItsOrderAndTheHostDoesNotWait) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              const size_t n = 1000;
              const GpuMemory x(cuda, n * 4);
              cuda.write(x.data(), ramp(n, static_cast<float>(context.rank)));
              const cuda::Stream stream = cuda.stream();
              const tutti_options options = on_stream(stream);
              uint64_t* gate = cuda.pinned();
              cuda.hold(stream, gate);
              const int rounds = 50;
              for (int i = 0; i < rounds; ++i)
                CGroup::expect(tutti_all_reduce(group.get(), x.data(), x.data(), n, TUTTI_F32,
                                                TUTTI_MEAN, &options, nullptr));
              std::atomic_ref(*gate).store(1);
              cuda.synchronize(stream);
              std::vector<float> mean = sum_of_ramps(n, context.world_size);
              for (float& value : mean) value /= static_cast<float>(context.world_size);
              check(cuda.read<float>(x.data(), n, stream) == mean, "a right mean");
            }),
            "");
}

TEST_P(GpuMesh, CxxTakesSpansOfDeviceMemoryAndAStream) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              Group group = context.join();
              const GpuMemory memory(cuda, 4000);
              const std::span x(reinterpret_cast<float*>(memory.data()), 1000);
              cuda.write(memory.data(), ramp(1000, static_cast<float>(context.rank)));
              const cuda::Stream stream = cuda.stream();
              group.all_reduce(x, sum, {.stream = stream});
              check(cuda.read<float>(memory.data(), 1000, stream) ==
                        sum_of_ramps(1000, context.world_size),
                    "a sum in the stream's order");
              group.all_reduce_async(x, max).wait();
              group.barrier();
            }),
            "");
}

// ---- Refusals ----

TEST_P(GpuMesh, WhatIsWrongIsRefusedOnAllRanksAndTheGroupGoesOn) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(0);
              CGroup group(context);
              const GpuMemory x(cuda, 4000);
              std::vector<float> host(1000);
              const auto reduce = [&](void* in, void* out, size_t count) {
                return tutti_all_reduce(group.get(), in, out, count, TUTTI_F32, TUTTI_SUM, nullptr,
                                        nullptr);
              };
              check_refused(reduce(x.data(), host.data(), 1000), TUTTI_INVALID_ARGUMENT,
                            "not in the memory of a GPU");
              check_refused(reduce(x.data(), x.data(), size_t{4} << 20), TUTTI_INVALID_ARGUMENT,
                            "its memory ends after");
              void* freed = cuda.allocate(4000);
              cuda.free(freed);
              tutti_options options = on_stream(nullptr);
              check_refused(tutti_all_reduce(group.get(), host.data(), host.data(), 1000, TUTTI_F32,
                                             TUTTI_SUM, &options, nullptr),
                            TUTTI_INVALID_ARGUMENT, "not in the memory of a GPU");
              cuda.write(x.data(), std::vector<float>(1000, 1));
              all_reduce(group, x.data(), x.data(), 1000);
              check(cuda.read<float>(x.data(), 1)[0] == static_cast<float>(context.world_size),
                    "the group goes on");
            }),
            "");
}

// A larger tensor replaces the run of chunks that the worker has of a smaller one, whose operation
// other ranks have not called yet.
TEST_P(GpuMesh, MemoryIsKeptWhileAnOperationNeedsIt) {
  if (ranks() == 1) return;
  EXPECT_EQ(run([this](const RankContext& context) {
              const CudaProgram cuda(0);
              CGroup group(context);
              auto* memory = static_cast<std::byte*>(cuda.allocate_chunks(2));
              const size_t chunk = (size_t{2} << 20) / 4;
              cuda.write(memory, std::vector<float>(2 * chunk, 1));
              if (context.rank != 0) arrived_.wait_for(0, 1);
              tutti_work* works[2] = {};
              all_reduce(group, memory, memory, 10, nullptr, &works[0]);
              all_reduce(group, memory + 400, memory + 400, 2 * chunk - 100, nullptr, &works[1]);
              if (context.rank == 0) ++arrived_[0];
              for (tutti_work* work : works) {
                CGroup::expect(tutti_work_wait(work, -1));
                tutti_work_free(work);
              }
            }),
            "");
}

// For a rank whose part is empty, in a program without CUDA.
TEST_P(GpuMesh, AStreamWithoutADriverIsRefused) {
  EXPECT_EQ(run([](const RankContext& context) {
              CGroup group(context);
              const std::vector<size_t> none(static_cast<size_t>(context.world_size));
              const tutti_options options = on_stream(nullptr);
              check_refused(tutti_all_gather_v(group.get(), nullptr, nullptr, none.data(),
                                               TUTTI_F32, &options, nullptr),
                            TUTTI_INVALID_ARGUMENT, "has not loaded the CUDA driver");
            }),
            "");
}

TEST_P(GpuMesh, AStreamThatIsCapturedIsRefused) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(0);
              CGroup group(context);
              const GpuMemory x(cuda, 4000);
              const cuda::Stream stream = cuda.stream();
              const tutti_options options = on_stream(stream);
              all_reduce(group, x.data(), x.data(), 10, &options);
              cuda.synchronize(stream);
              using Begin = cuda::Error (*)(cuda::Stream, int);
              void* driver = dlopen(driver_under_test().c_str(), RTLD_NOW);
              const auto begin = reinterpret_cast<Begin>(dlsym(driver, "cuStreamBeginCapture_v2"));
              constexpr int kThreadLocal = 1;
              cuda.expect(begin(stream, kThreadLocal));
              check_refused(tutti_all_reduce(group.get(), x.data(), x.data(), 10, TUTTI_F32,
                                             TUTTI_SUM, &options, nullptr),
                            TUTTI_FAILED_PRECONDITION, "captured into a CUDA graph");
              using End = cuda::Error (*)(cuda::Stream, void**);
              const auto end = reinterpret_cast<End>(dlsym(driver, "cuStreamEndCapture"));
              void* graph = nullptr;
              cuda.expect(end(stream, &graph));
            }),
            "");
}

TEST_P(GpuMesh, RanksThatDisagreeWhereTheTensorIsAreNotified) {
  if (ranks() == 1) return;
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(0);
              CGroup group(context);
              const GpuMemory x(cuda, 4000);
              std::vector<float> host(1000, 1);
              void* mine = context.rank == 0 ? static_cast<void*>(host.data()) : x.data();
              check_refused(tutti_all_reduce(group.get(), mine, mine, 1000, TUTTI_F32, TUTTI_SUM,
                                             nullptr, nullptr),
                            TUTTI_FAILED_PRECONDITION, "in GPU memory");
              cuda.write(x.data(), std::vector<float>(1000, 1));
              all_reduce(group, x.data(), x.data(), 1000);
            }),
            "");
}

// ---- Failures ----

// A rank whose stream never arrives: the others' streams are released by the deadline.
TEST_P(GpuMesh, ADeadlineReleasesStreams) {
  if (ranks() == 1) return;
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              const GpuMemory x(cuda, 4000);
              const cuda::Stream stream = cuda.stream();
              tutti_options options = on_stream(stream);
              options.timeout_ms = 1000;
              uint64_t* gate = cuda.pinned();
              all_reduce(group, x.data(), x.data(), 1000);  // The worker opens its GPUs.
              if (context.rank == 0) cuda.hold(stream, gate);
              tutti_work* work = nullptr;
              all_reduce(group, x.data(), x.data(), 1000, &options, &work);
              const tutti_code code = tutti_work_wait(work, -1);
              check(code == TUTTI_DEADLINE_EXCEEDED || code == TUTTI_UNAVAILABLE,
                    tutti_last_error()->message);
              std::atomic_ref(*gate).store(1);
              cuda.synchronize(stream);
              tutti_work_free(work);
            }),
            "");
}

// The stream gets to the operation when that has failed and the group is gone.
TEST_P(GpuMesh, AStreamThatIsLateOutlivesItsGroup) {
  if (ranks() == 1) return;
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              const GpuMemory x(cuda, 4000);
              const cuda::Stream stream = cuda.stream();
              tutti_options options = on_stream(stream);
              options.timeout_ms = 500;
              uint64_t* gate = cuda.pinned();
              {
                CGroup group(context);
                all_reduce(group, x.data(), x.data(), 1000);  // The worker opens its GPUs.
                cuda.hold(stream, gate);
                tutti_work* work = nullptr;
                all_reduce(group, x.data(), x.data(), 1000, &options, &work);
                check(tutti_work_wait(work, -1) != TUTTI_OK, "it fails");
                tutti_work_free(work);
              }
              std::atomic_ref(*gate).store(1);
              cuda.synchronize(stream);
            }),
            "");
}

// The words of operations that failed serve later ones.
TEST_P(GpuMesh, ManyFailuresUseNothingUp) {
  if (ranks() == 1) return;
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(0);
              CGroup group(context);
              const GpuMemory x(cuda, 4000);
              const cuda::Stream stream = cuda.stream();
              const tutti_options options = on_stream(stream);
              for (int i = 0; i < 1100; ++i) {
                const size_t count = context.rank == 0 ? 10 : 11;
                tutti_work* work = nullptr;
                all_reduce(group, x.data(), x.data(), count, &options, &work);
                check_refused(tutti_work_wait(work, -1), TUTTI_FAILED_PRECONDITION, "disagree");
                tutti_work_free(work);
              }
              cuda.synchronize(stream);
              all_reduce(group, x.data(), x.data(), 10, &options);
              cuda.synchronize(stream);
            }),
            "");
}

// A rank dies before its stream arrives: all others learn its name, and their streams go on.
TEST_P(GpuMesh, ADeathReleasesStreamsByName) {
  if (ranks() == 1) return;
  std::vector<Trainer> trainers = start([](const RankContext& context) {
    const CudaProgram cuda(context.rank % 2);
    CGroup group(context);
    const GpuMemory x(cuda, 4000);
    all_reduce(group, x.data(), x.data(), 1000);
    const cuda::Stream stream = cuda.stream();
    const tutti_options options = on_stream(stream);
    uint64_t* gate = cuda.pinned();
    const bool dies = context.rank == context.world_size - 1;
    if (dies) cuda.hold(stream, gate);
    tutti_work* work = nullptr;
    all_reduce(group, x.data(), x.data(), 1000, &options, &work);
    write_line("started");
    check_refused(tutti_work_wait(work, -1), TUTTI_UNAVAILABLE,
                  "rank " + std::to_string(context.world_size - 1));
    cuda.synchronize(stream);
    tutti_work_free(work);
  });
  for (Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), "started");
  trainers.back().kill(SIGKILL);
  for (size_t i = 0; i + 1 < trainers.size(); ++i) EXPECT_EQ(trainers[i].wait(), "");
}

// How many the process holds once there are no more than `most`: the worker learns of the ends of
// its ranks one by one.
int settled_descriptors(pid_t process, int most) {
  await([&] { return gpu_descriptors(process) <= most; });
  return gpu_descriptors(process);
}

// Deaths in the middle of operations leave nothing mapped in the worker, which serves on.
TEST_P(GpuMesh, DeathsLeaveNoMemoryBehind) {
  if (!is_fake_under_test()) GTEST_SKIP() << "counts the fake driver's descriptors";
  if (GetParam().size() != 1 || ranks() == 1) return;
  const auto body = [](const RankContext& context) {
    const CudaProgram cuda(context.rank % 2);
    CGroup group(context);
    const GpuMemory x(cuda, 4 << 20), y(cuda, 4 << 20);
    const cuda::Stream stream = cuda.stream();
    const tutti_options options = on_stream(stream);
    all_reduce(group, x.data(), y.data(), 1000, &options);
    write_line("started");
    for (;;)
      if (tutti_all_reduce(group.get(), x.data(), y.data(), 1 << 20, TUTTI_F32, TUTTI_SUM, &options,
                           nullptr) != TUTTI_OK)
        break;
    check_refused(tutti_barrier(group.get(), nullptr, nullptr), TUTTI_UNAVAILABLE,
                  "rank " + std::to_string(context.world_size - 1));
    cuda.synchronize(stream);
  };
  for (int round = 0; round < 12; ++round) {
    std::vector<Trainer> trainers = start(body);
    for (Trainer& trainer : trainers) ASSERT_EQ(trainer.read_line(), "started");
    const pid_t worker = worker_of(mesh_, 0);
    ASSERT_GT(worker, 0);
    trainers.back().kill(SIGKILL);
    for (size_t i = 0; i + 1 < trainers.size(); ++i) ASSERT_EQ(trainers[i].wait(), "");
    // A spare lane of each of the two GPUs keeps a word; the ranks' tensors were eight.
    EXPECT_LE(settled_descriptors(worker, 4), 4) << "round " << round;
  }
}

// The worker dies: the streams that wait for it are released, and the job forms again.
TEST_P(GpuMesh, AWorkerThatIsKilledReleasesStreams) {
  if (ranks() == 1) return;
  std::vector<Trainer> trainers = start([](const RankContext& context) {
    const CudaProgram cuda(context.rank % 2);
    const GpuMemory x(cuda, 4000);
    {
      CGroup group(context);
      all_reduce(group, x.data(), x.data(), 1000);
      const cuda::Stream stream = cuda.stream();
      const tutti_options options = on_stream(stream);
      uint64_t* gate = cuda.pinned();
      if (context.rank == 0) cuda.hold(stream, gate);
      tutti_work* work = nullptr;
      all_reduce(group, x.data(), x.data(), 1000, &options, &work);
      write_line("started");
      check_refused(tutti_work_wait(work, -1), TUTTI_UNAVAILABLE, "worker");
      tutti_work_free(work);
      std::atomic_ref(*gate).store(1);
      cuda.synchronize(stream);
    }
    const std::unique_ptr<CGroup> again = join_again(context);
    cuda.write(x.data(), std::vector<float>(1000, 1));
    all_reduce(*again, x.data(), x.data(), 1000);
    check(cuda.read<float>(x.data(), 1)[0] == static_cast<float>(context.world_size), "a sum");
  });
  for (Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), "started");
  const pid_t worker = worker_of(mesh_, 0);
  ASSERT_GT(worker, 0);
  kill(worker, SIGKILL);
  EXPECT_EQ(TestMesh::wait(trainers), "");
}

}  // namespace
}  // namespace tutti

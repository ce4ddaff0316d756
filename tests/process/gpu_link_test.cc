// Operations on GPUs that go between hosts by NCCL, or by links where a host cannot: through real
// agents, workers and trainers, over the fake NCCL and the fake driver.
#include "tests/process/gpu_link_fixture.h"
#include "tests/support/await.h"

namespace tutti {
namespace {

using namespace testing;

class GpuLink : public GpuLinkMesh {
 protected:
  // All operations go by links; the workers say why.
  void expect_host_links(const std::string& why, int gpus = 1);
};

INSTANTIATE_TEST_SUITE_P(Layouts, GpuLink,
                         ::testing::Values(std::vector{1, 1}, std::vector{2, 1},
                                           std::vector{1, 2, 1}));

TEST_P(GpuLink, OperationsGoByNcclOnceAllHostsHaveIt) {
  std::vector<Trainer> trainers = start([this](const RankContext& context) {
    const GpuRank rank(context);
    CGroup group(context);
    rank.reduce_until(group, [this] { return nccl_was_used(); });
    for (int i = 0; i < 20; ++i) rank.check_ramp(group);
    write_line("works");
    gate_.wait();
  });
  for (const Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), "works");
  for (int host = 0; host < hosts(); ++host) {
    const auto report = worker(host);
    EXPECT_EQ(report.gpu_link(), "nccl") << report.gpu_link_why();
  }
  gate_.open_for(trainers.size());
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_->log_tails();
  EXPECT_EQ(nccl_log().substr(0, 20), "all_reduce f32 1000\n");
}

template <class T>
void check_reduced(const GpuRank& rank, CGroup& group, tutti_dtype dtype, tutti_op op, T result) {
  constexpr size_t kElements = 100;
  rank.cuda.write(rank.data(), std::vector<T>(kElements, static_cast<T>(rank.rank + 1)));
  CGroup::expect(tutti_all_reduce(group.get(), rank.data(), rank.data(), kElements, dtype, op,
                                  nullptr, nullptr));
  check(rank.cuda.read<T>(rank.data(), kElements) == std::vector<T>(kElements, result),
        "a right result");
}

// By NCCL, and by links what it does not do, in turn.
void check_every_kind(const GpuRank& rank, CGroup& group) {
  const int n = rank.ranks;
  const int sum = n * (n + 1) / 2;
  check_reduced<float>(rank, group, TUTTI_F32, TUTTI_MEAN,
                       static_cast<float>(sum) / static_cast<float>(n));
  check_reduced<float>(rank, group, TUTTI_F32, TUTTI_MAX, static_cast<float>(n));
  check_reduced<double>(rank, group, TUTTI_F64, TUTTI_SUM, sum);
  check_reduced<int16_t>(rank, group, TUTTI_I16, TUTTI_SUM, static_cast<int16_t>(sum));
  check_reduced<int>(rank, group, TUTTI_I32, TUTTI_MIN, 1);
  check_reduced<uint8_t>(rank, group, TUTTI_U8, TUTTI_MAX, static_cast<uint8_t>(n));
  check_reduced<uint8_t>(rank, group, TUTTI_BOOL, TUTTI_SUM, 1);
  check_reduced<int64_t>(rank, group, TUTTI_I64, TUTTI_SUM, sum);
}

// For three tensors, each input multiplied by its rank's factor.
void check_list(const GpuRank& rank, CGroup& group) {
  constexpr std::array<size_t, 3> kCounts = {3, 1, 97};
  rank.cuda.write(rank.data(), std::vector<float>(120, static_cast<float>(rank.rank + 1)));
  void* const data = rank.data();
  const auto at = [&](size_t value) { return static_cast<float*>(data) + value; };
  const std::array<void*, 3> tensors = {at(0), at(10), at(20)};
  tutti_options options = tutti_defaults();
  options.factor = 0.5;
  CGroup::expect(tutti_all_reduce_many(group.get(), tensors.data(), tensors.data(), kCounts.data(),
                                       kCounts.size(), TUTTI_F32, TUTTI_PREMUL_SUM, &options,
                                       nullptr));
  const auto sum = static_cast<float>(rank.ranks * (rank.ranks + 1)) / 4;
  std::vector<float> expected(120, static_cast<float>(rank.rank + 1));
  for (size_t i = 0; i < kCounts.size(); ++i)
    std::fill_n(expected.begin() + static_cast<ptrdiff_t>(10 * i), kCounts[i], sum);
  check(rank.cuda.read<float>(rank.data(), 120) == expected, "a right list");
}

void check_roots(const GpuRank& rank, CGroup& group) {
  for (int root = 0; root < rank.ranks; ++root) {
    rank.cuda.write(rank.data(), std::vector<int>(100, rank.rank + 1));
    CGroup::expect(
        tutti_broadcast(group.get(), rank.data(), 100, TUTTI_I32, root, nullptr, nullptr));
    check(rank.cuda.read<int>(rank.data(), 100) == std::vector<int>(100, root + 1), "a broadcast");
    CGroup::expect(tutti_reduce(group.get(), rank.data(), rank.rank == root ? rank.data() : nullptr,
                                100, TUTTI_I32, TUTTI_SUM, root, nullptr, nullptr));
    const int result = rank.rank == root ? (root + 1) * rank.ranks : root + 1;
    check(rank.cuda.read<int>(rank.data(), 100) == std::vector<int>(100, result), "a reduction");
  }
}

TEST_P(GpuLink, EveryKindGivesTheSameValues) {
  EXPECT_EQ(run([this](const RankContext& context) {
              const GpuRank rank(context);
              CGroup group(context);
              rank.reduce_until(group, [this] { return nccl_was_used(); });
              for (int i = 0; i < 3; ++i) check_every_kind(rank, group);
              check_roots(rank, group);
              check_list(rank, group);
            }),
            "");
  const std::string log = nccl_log();
  for (const char* used : {"all_reduce f64 100", "all_reduce i32 100", "all_reduce f32 101",
                           "broadcast", "reduce i32"})
    EXPECT_NE(log.find(used), std::string::npos) << used;
  EXPECT_EQ(log.find("i16"), std::string::npos);
}

// The processor runs far ahead of the GPUs.
TEST_P(GpuLink, TheOrderOfAStream) {
  EXPECT_EQ(run([this](const RankContext& context) {
              constexpr int kOperations = 30;
              const GpuRank rank(context);
              CGroup group(context);
              rank.reduce_until(group, [this] { return nccl_was_used(); });
              const cuda::Stream stream = rank.cuda.stream();
              const tutti_options options = on_stream(stream);
              std::vector<int> ones(100, 1);
              rank.cuda.write(rank.data(), ones, stream);
              uint64_t* gate = rank.cuda.pinned();
              rank.cuda.hold(stream, gate);
              for (int i = 0; i < kOperations; ++i)
                CGroup::expect(tutti_all_reduce(group.get(), rank.data(), rank.data(), 100,
                                                TUTTI_I32, TUTTI_SUM, &options, nullptr));
              std::atomic_ref(*gate).store(1);
              unsigned result = 1;
              for (int i = 0; i < kOperations; ++i) result *= static_cast<unsigned>(rank.ranks);
              check(rank.cuda.read<unsigned>(rank.data(), 100, stream) ==
                        std::vector<unsigned>(100, result),
                    "a right power");
            }),
            "");
}

TEST_P(GpuLink, ATensorOfSeveralPieces) {
  EXPECT_EQ(
      run([this](const RankContext& context) {
        constexpr size_t kElements = (size_t{9} << 20) + 5;
        const GpuRank rank(context);
        CGroup group(context);
        rank.reduce_until(group, [this] { return nccl_was_used(); });
        const GpuMemory large(rank.cuda, kElements * sizeof(float));
        rank.cuda.write(large.data(), ramp(kElements, static_cast<float>(rank.rank)));
        all_reduce(group, large.data(), large.data(), kElements);
        check(rank.cuda.read<float>(large.data(), kElements) == sum_of_ramps(kElements, rank.ranks),
              "a right sum");
      }),
      "");
}

TEST_P(GpuLink, TheNextEpochMakesACommunicatorOfItsOwn) {
  EXPECT_EQ(run([this](const RankContext& context) {
              const GpuRank rank(context);
              size_t before = 0;
              for (int epoch = 0; epoch < 3; ++epoch) {
                CGroup group(context);
                rank.reduce_until(group, [&] { return nccl_log().size() > before; });
                CGroup::expect(tutti_barrier(group.get(), nullptr, nullptr));
                before = nccl_log().size();
              }
            }),
            "");
}

// ---- Where a host cannot ----

void GpuLink::expect_host_links(const std::string& why, int gpus) {
  std::vector<Trainer> trainers = start([this, gpus](const RankContext& context) {
    const GpuRank rank(context, context.rank % gpus);
    CGroup group(context);
    for (int i = 0; i < 60; ++i) rank.check_ramp(group);
    write_line("works");
    gate_.wait();
    for (int i = 0; i < 60; ++i) rank.check_ramp(group);
  });
  for (const Trainer& trainer : trainers) EXPECT_EQ(trainer.read_line(), "works");
  for (int host = 0; host < hosts(); ++host) {
    std::string said;
    await([&] {
      said = worker(host).gpu_link_why();
      return said.find(why) != std::string::npos;
    });
    EXPECT_NE(said.find(why), std::string::npos) << "host " << host << ": " << said;
    EXPECT_EQ(worker(host).gpu_link(), "host");
  }
  gate_.open_for(trainers.size());
  EXPECT_EQ(TestMesh::wait(trainers), "") << mesh_->log_tails();
  EXPECT_FALSE(nccl_was_used());
}

TEST_P(GpuLink, TheSettingIsKept) {
  set("TUTTI_GPU_LINK", "host");
  expect_host_links("gpu_link of its tuttid is host");
}

TEST_P(GpuLink, WithoutTheLibraryLinksAreUsed) {
  set("TUTTI_GPU_LINK", "auto");
  set("TUTTI_NCCL_LIBRARY", "libno-such-nccl.so.2");
  expect_host_links("there is no NCCL: libno-such-nccl.so.2");
}

TEST_P(GpuLink, AHostThatMakesNoCommunicatorIsNamed) {
  set_fault("init_fails 1");
  expect_host_links("host b: no communicator was made: unhandled system error (NCCL)");
}

TEST_P(GpuLink, AnIdThatIsNotMadeIsReported) {
  set_fault("no_id");
  expect_host_links("host a: no id was made");
}

TEST_P(GpuLink, ACommunicatorThatIsNotMadeInTimeIsReported) {
  set("TUTTI_NCCL_TIMEOUT_MS", "1000");
  set_fault("init_hangs 1");
  expect_host_links("NCCL made no communicator within 1000 ms");
}

// Ranks and worker need a little; what NCCL works on does not fit.
TEST_P(GpuLink, AGpuWithoutMemoryForItUsesLinks) {
  set("FAKE_CUDA_BYTES", std::to_string(100 << 20));
  expect_host_links("out of memory");
}

TEST_P(GpuLink, SeveralGpusOfAHostUseLinks) {
  if (GetParam().front() != 2) GTEST_SKIP() << "the first host has one rank";
  set("TUTTI_GPU_LINK", "auto");
  expect_host_links("host a: its ranks use 2 GPUs", 2);
}

}  // namespace
}  // namespace tutti

// Lists of tensors in the memory of GPUs: one operation each, with the bits of the host, on one
// host with several ranks a GPU and several GPUs, and on two hosts.
#include <numeric>

#include "tests/process/gpu_fixture.h"

namespace tutti {
namespace {

using namespace testing;

constexpr std::array<size_t, 8> kListCounts = {1000, 0, 1, 7, 300'001, 129, 0, 4096};

class GpuLists : public GpuMesh {};

INSTANTIATE_TEST_SUITE_P(Layouts, GpuLists,
                         ::testing::Values(std::vector{1}, std::vector{2}, std::vector{4},
                                           std::vector{1, 1}, std::vector{3, 2}));

// A list of tensors of one dtype in one buffer, each behind an odd gap.
class List {
 public:
  List(Dtype dtype, std::span<const size_t> counts)
      : dtype_(dtype), counts_(counts.begin(), counts.end()) {
    for (const size_t count : counts_) {
      bytes_ += kGap * size_of(dtype);
      offsets_.push_back(bytes_);
      bytes_ += count * size_of(dtype);
    }
  }
  size_t bytes() const { return bytes_; }
  std::vector<void*> at(std::byte* base) const {
    std::vector<void*> all;
    for (const size_t offset : offsets_) all.push_back(base + offset);
    return all;
  }
  Bytes values(int seed) const { return sevenths(dtype_, bytes_ / size_of(dtype_), seed); }
  tutti_code all_reduce(CGroup& group, std::byte* in, std::byte* out, tutti_op op,
                        const tutti_options* options, tutti_work** work = nullptr) const {
    const std::vector<void*> ins = at(in), outs = at(out);
    return tutti_all_reduce_many(group.get(), ins.data(), outs.data(), counts_.data(),
                                 counts_.size(), static_cast<tutti_dtype>(dtype_), op, options,
                                 work);
  }

 private:
  static constexpr size_t kGap = 3;
  const Dtype dtype_;
  const std::vector<size_t> counts_;
  std::vector<size_t> offsets_;
  size_t bytes_ = 0;
};

void check_same_bits(CGroup& group, const CudaProgram& cuda, const List& list, tutti_op op,
                     const tutti_options& options, const std::string& what) {
  testing::check_same_bits(
      what, cuda, list.values(tutti_rank(group.get())), options,
      [&](std::byte* in, std::byte* out, const tutti_options* how, tutti_work** work) {
        return list.all_reduce(group, in, out, op, how, work);
      });
  CGroup::expect(tutti_barrier(group.get(), nullptr, nullptr));  // Nobody leaves before.
}

TEST_P(GpuLists, ListsGiveTheBitsOfTheHost) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              const std::vector<std::pair<Dtype, tutti_op>> kinds = {
                  {Dtype::f32, TUTTI_SUM},  {Dtype::f32, TUTTI_PREMUL_SUM},
                  {Dtype::f64, TUTTI_MEAN}, {Dtype::bf16, TUTTI_PREMUL_SUM},
                  {Dtype::f16, TUTTI_MEAN}, {Dtype::i64, TUTTI_MAX},
                  {Dtype::u8, TUTTI_BXOR}};
              for (const auto& [dtype, op] : kinds) {
                const List list(dtype, kListCounts);
                for (const char* strategy : kStrategies) {
                  tutti_options options = tutti_defaults();
                  options.strategy = strategy;
                  if (op == TUTTI_PREMUL_SUM) options.factor = 1.0 / (context.rank + 2);
                  check_same_bits(group, cuda, list, op, options,
                                  std::string(name_of(dtype)) + " " + strategy);
                }
              }
            }),
            "");
}

TEST_P(GpuLists, AListOfManySmallTensors) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              std::vector<size_t> counts(1500);
              std::iota(counts.begin(), counts.end(), 1);
              for (size_t& count : counts) count = count * 37 % 300;
              const List list(Dtype::f32, counts);
              check_same_bits(group, cuda, list, TUTTI_SUM, tutti_defaults(), "many");
            }),
            "");
}

// The host starts lists and single tensors before the stream reaches the first.
TEST_P(GpuLists, ListsGoInTheOrderOfAStream) {
  EXPECT_EQ(
      run([](const RankContext& context) {
        const CudaProgram cuda(context.rank % 2);
        CGroup group(context);
        const List list(Dtype::f32, std::array<size_t, 2>{100, 50});
        const size_t all = list.bytes() / 4;
        const GpuMemory x(cuda, list.bytes());
        cuda.write(x.data(), std::vector<float>(all, 1));
        const cuda::Stream stream = cuda.stream();
        const tutti_options options = on_stream(stream);
        uint64_t* gate = cuda.pinned();
        cuda.hold(stream, gate);
        for (int round = 0; round < 3; ++round)
          CGroup::expect(list.all_reduce(group, x.data(), x.data(), TUTTI_SUM, &options));
        all_reduce(group, x.data(), x.data(), all, &options);
        tutti_work* work = nullptr;
        CGroup::expect(list.all_reduce(group, x.data(), x.data(), TUTTI_SUM, &options, &work));
        check(tutti_work_done(work) == 0, "the stream has not reached the list");
        std::atomic_ref(*gate).store(1);
        CGroup::expect(tutti_work_wait(work, -1));
        tutti_work_free(work);
        const auto ranks = static_cast<float>(context.world_size);
        const std::vector<float> values = cuda.read<float>(x.data(), all, stream);
        check(values[0] == ranks, "between the tensors");
        check(values[3] == ranks * ranks * ranks * ranks * ranks, "the first tensor");
        check(values[all - 1] == values[3], "the last one");
      }),
      "");
}

// ---- Refusals ----

TEST_P(GpuLists, AMixedListIsRefusedAndTheGroupGoesOn) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(0);
              CGroup group(context);
              const GpuMemory x(cuda, 4000);
              std::vector<float> host(1000, 1);
              const size_t counts[] = {0, 10, 10};
              const auto reduce = [&](void* second, void* third, const tutti_options* options) {
                void* both[] = {nullptr, second, third};
                return tutti_all_reduce_many(group.get(), both, both, counts, 3, TUTTI_F32,
                                             TUTTI_SUM, options, nullptr);
              };
              check_refused(reduce(x.data(), host.data(), nullptr), TUTTI_INVALID_ARGUMENT,
                            "tensor 2 of the list: the input is not in the memory of a GPU");
              const tutti_options options = on_stream(cuda.stream());
              check_refused(reduce(host.data(), host.data(), &options), TUTTI_INVALID_ARGUMENT,
                            "tensor 1 of the list: the input is not in the memory of a GPU");
              void* large[] = {x.data(), x.data()};
              const size_t larger[] = {10, size_t{4} << 20};
              check_refused(tutti_all_reduce_many(group.get(), large, large, larger, 2, TUTTI_F32,
                                                  TUTTI_SUM, nullptr, nullptr),
                            TUTTI_INVALID_ARGUMENT, "tensor 1 of the list: the input has");
              const size_t none[] = {0, 0};
              void* empty[] = {x.data(), host.data()};
              CGroup::expect(tutti_all_reduce_many(group.get(), empty, empty, none, 2, TUTTI_F32,
                                                   TUTTI_SUM, nullptr, nullptr));
              cuda.write(x.data(), std::vector<float>(1000, 1));
              CGroup::expect(reduce(x.data(), x.data() + 400, nullptr));
              check(cuda.read<float>(x.data() + 400, 10) ==
                        std::vector<float>(10, static_cast<float>(context.world_size)),
                    "the group goes on");
            }),
            "");
}

// An empty tensor may lie anywhere.
TEST_P(GpuLists, AListOfTheHostWithAnEmptyTensorOnAGpu) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(0);
              CGroup group(context);
              const GpuMemory x(cuda, 4000);
              std::vector<float> host(10, 1);
              const size_t counts[] = {10, 0};
              void* both[] = {host.data(), x.data()};
              CGroup::expect(tutti_all_reduce_many(group.get(), both, both, counts, 2, TUTTI_F32,
                                                   TUTTI_SUM, nullptr, nullptr));
              check(host == std::vector<float>(10, static_cast<float>(context.world_size)),
                    "a right sum");
            }),
            "");
}

TEST_P(GpuLists, RanksThatListOtherTensorsAreNotified) {
  if (ranks() == 1) return;
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(0);
              CGroup group(context);
              const GpuMemory x(cuda, 4000);
              std::vector<float> host(1000);
              const bool first = context.rank == 0;
              const size_t counts[] = {first ? size_t{10} : 20, first ? size_t{20} : 10};
              const auto reduce = [&](std::byte* memory, const size_t* sizes) {
                void* both[] = {memory, memory + 400};
                return tutti_all_reduce_many(group.get(), both, both, sizes, 2, TUTTI_F32,
                                             TUTTI_SUM, nullptr, nullptr);
              };
              check_refused(reduce(x.data(), counts), TUTTI_FAILED_PRECONDITION, "tensors");
              const size_t same[] = {10, 20};
              std::byte* mine = first ? reinterpret_cast<std::byte*>(host.data()) : x.data();
              check_refused(reduce(mine, same), TUTTI_FAILED_PRECONDITION, "in GPU memory");
              CGroup::expect(reduce(x.data(), same));
            }),
            "");
}

// ---- Memory that is not mapped ----

// For rank 0 every tensor, for the others none or one side.
TEST_P(GpuLists, TensorsOfAListThatAreNotExportedAreStaged) {
  EXPECT_EQ(
      run([](const RankContext& context) {
        const CudaProgram cuda(context.rank % 2);
        CGroup group(context);
        const List list(Dtype::f32, kListCounts);
        const int chunks = static_cast<int>(list.bytes() >> 21) + 1;
        auto* hidden = static_cast<std::byte*>(cuda.allocate_chunks(chunks, false));
        const GpuMemory mapped(cuda, list.bytes());
        std::byte* in = context.rank % 3 != 2 ? hidden : mapped.data();
        std::byte* out = context.rank % 3 == 1 ? mapped.data() : in;
        Bytes expected(list.bytes());
        Bytes input = list.values(context.rank);
        for (int round = 0; round < 3; ++round) {
          expected = input;
          CGroup::expect(list.all_reduce(group, input.data(), expected.data(), TUTTI_SUM, nullptr));
          cuda.write(out, input);
          cuda.write(in, input);
          const tutti_options options = on_stream(cuda.stream());
          CGroup::expect(
              list.all_reduce(group, in, out, TUTTI_SUM, round == 1 ? &options : nullptr));
          cuda.synchronize(static_cast<cuda::Stream>(options.stream));
          check(cuda.read<std::byte>(out, list.bytes()) == expected, "a staged list");
        }
      }),
      "");
}

// ---- Deaths ----

TEST_P(GpuLists, ADeathEndsAListByName) {
  if (ranks() == 1) return;
  std::vector<Trainer> trainers = start([](const RankContext& context) {
    const CudaProgram cuda(context.rank % 2);
    CGroup group(context);
    const List list(Dtype::f32, kListCounts);
    const GpuMemory x(cuda, list.bytes());
    const cuda::Stream stream = cuda.stream();
    const tutti_options options = on_stream(stream);
    CGroup::expect(list.all_reduce(group, x.data(), x.data(), TUTTI_SUM, &options));
    cuda.synchronize(stream);
    uint64_t* gate = cuda.pinned();
    if (context.rank == context.world_size - 1) cuda.hold(stream, gate);
    tutti_work* work = nullptr;
    CGroup::expect(list.all_reduce(group, x.data(), x.data(), TUTTI_SUM, &options, &work));
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

}  // namespace
}  // namespace tutti

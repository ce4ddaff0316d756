// Values of operations on the memory of GPUs: the bits that the host gives, in each dtype and under
// every strategy, on one host with several ranks a GPU and several GPUs, and on two hosts.
#include "tests/process/gpu_fixture.h"

namespace tutti {
namespace {

using namespace testing;

constexpr std::array kFloats = {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16};

class GpuValues : public GpuMesh {};

INSTANTIATE_TEST_SUITE_P(Layouts, GpuValues,
                         ::testing::Values(std::vector{1}, std::vector{2}, std::vector{5},
                                           std::vector{1, 1}, std::vector{3, 2}));

// For each rank; the first one's is 1.
double factor_of(int rank) { return rank == 0 ? 1 : 1.0 / (rank + 2); }

using Call = std::function<tutti_code(const void* in, void* out, const tutti_options*)>;

// Calls an operation whose input and output are equally large, on the host; on a GPU; and there in
// place and in the order of a stream.
void check_same_bits(const std::string& what, const CudaProgram& cuda, const Bytes& input,
                     tutti_options options, const Call& call) {
  const size_t bytes = input.size();
  Bytes expected(bytes);
  CGroup::expect(call(input.data(), expected.data(), &options));
  const GpuMemory in(cuda, bytes), out(cuda, bytes);
  cuda.write(in.data(), input);
  CGroup::expect(call(in.data(), out.data(), &options));
  check(cuda.read<std::byte>(out.data(), bytes) == expected, what);
  check(cuda.read<std::byte>(in.data(), bytes) == input, what + ": the input stays");
  const cuda::Stream stream = cuda.stream();
  options.on_stream = 1;
  options.stream = stream;
  CGroup::expect(call(in.data(), in.data(), &options));
  check(cuda.read<std::byte>(in.data(), bytes, stream) == expected, what + " in place");
}

tutti_options with(const char* strategy, double factor) {
  tutti_options options = tutti_defaults();
  options.strategy = strategy;
  options.factor = factor;
  return options;
}

TEST_P(GpuValues, FactorsGiveTheBitsOfTheHost) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              for (const Dtype dtype : kFloats)
                for (const size_t count : {1, 5001, 200'003}) {
                  const Bytes input = sevenths(dtype, count, context.rank);
                  for (const char* strategy : kStrategies)
                    check_same_bits(std::string(name_of(dtype)) + " " + strategy, cuda, input,
                                    with(strategy, factor_of(context.rank)),
                                    [&](const void* in, void* out, const tutti_options* options) {
                                      return tutti_all_reduce(group.get(), in, out, count,
                                                              static_cast<tutti_dtype>(dtype),
                                                              TUTTI_PREMUL_SUM, options, nullptr);
                                    });
                }
            }),
            "");
}

// A reduce_scatter folds other parts of the input for each rank.
TEST_P(GpuValues, FactorsOfAReduceScatter) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              const size_t count = 3001;
              const auto ranks = static_cast<size_t>(context.world_size);
              for (const Dtype dtype : kFloats) {
                const Bytes input = sevenths(dtype, count * ranks, context.rank);
                Bytes expected(count * size_of(dtype));
                const tutti_options options = with("ring", factor_of(context.rank));
                const auto scatter = [&](const void* in, void* out) {
                  CGroup::expect(tutti_reduce_scatter(group.get(), in, out, count,
                                                      static_cast<tutti_dtype>(dtype),
                                                      TUTTI_PREMUL_SUM, &options, nullptr));
                };
                scatter(input.data(), expected.data());
                const GpuMemory in(cuda, input.size()), out(cuda, expected.size());
                cuda.write(in.data(), input);
                scatter(in.data(), out.data());
                check(cuda.read<std::byte>(out.data(), expected.size()) == expected,
                      std::string(name_of(dtype)));
              }
            }),
            "");
}

TEST_P(GpuValues, FactorsAtTheRootOfAReduce) {
  EXPECT_EQ(run([](const RankContext& context) {
              const CudaProgram cuda(context.rank % 2);
              CGroup group(context);
              const size_t count = 10'000;
              const GpuMemory x(cuda, count * 4);
              cuda.write(x.data(), std::vector<float>(count, 8));
              const tutti_options options = with(nullptr, context.rank == 0 ? 0.5 : 0.25);
              CGroup::expect(tutti_reduce(group.get(), x.data(), x.data(), count, TUTTI_F32,
                                          TUTTI_PREMUL_SUM, 0, &options, nullptr));
              const auto others = static_cast<float>(context.world_size - 1);
              check(cuda.read<float>(x.data(), count) ==
                        std::vector<float>(count, context.rank == 0 ? 4 + 2 * others : 8),
                    "the sum at the root alone");
            }),
            "");
}

}  // namespace
}  // namespace tutti

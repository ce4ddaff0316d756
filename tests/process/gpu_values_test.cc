// Values of operations on the memory of GPUs, and the bits that the host gives, in each dtype and
// under every strategy, on one host with several ranks a GPU and several GPUs, and on two hosts.
#include "tests/process/gpu_fixture.h"

namespace tutti {
namespace {

using namespace testing;

constexpr std::array kFloats = {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16};

class GpuValues : public GpuMesh {};

INSTANTIATE_TEST_SUITE_P(Layouts, GpuValues,
                         ::testing::Values(std::vector{1}, std::vector{2}, std::vector{4},
                                           std::vector{5}, std::vector{1, 1}, std::vector{3, 2}));

TEST_P(GpuValues, EveryCollectiveIsExact) {
  EXPECT_EQ(run([](const RankContext& context) { check_values(context); }), "");
}

// For each rank; the first one's is 1.
double factor_of(int rank) { return rank == 0 ? 1 : 1.0 / (rank + 2); }

tutti_options with(const char* strategy, double factor) {
  tutti_options options = tutti_defaults();
  options.strategy = strategy;
  options.factor = factor;
  return options;
}

TEST_P(GpuValues, FactorsGiveTheBitsOfTheHost) {
  EXPECT_EQ(
      run([](const RankContext& context) {
        const CudaProgram cuda(context.rank % 2);
        CGroup group(context);
        for (const Dtype dtype : kFloats)
          for (const size_t count : {1, 5001, 200'003}) {
            const Bytes input = sevenths(dtype, count, context.rank);
            for (const char* strategy : kStrategies)
              check_same_bits(std::string(name_of(dtype)) + " " + strategy, cuda, input,
                              with(strategy, factor_of(context.rank)),
                              [&](std::byte* in, std::byte* out, const tutti_options* options,
                                  tutti_work** work) {
                                return tutti_all_reduce(group.get(), in, out, count,
                                                        static_cast<tutti_dtype>(dtype),
                                                        TUTTI_PREMUL_SUM, options, work);
                              });
          }
        CGroup::expect(tutti_barrier(group.get(), nullptr, nullptr));  // Nobody leaves before.
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

}  // namespace
}  // namespace tutti

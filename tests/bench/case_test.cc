// The cases of a bench: inputs, expected results, and the figures computed from them.
#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/bench/bench.h"
#include "tests/support/values.h"

namespace tutti {
namespace {

using namespace testing;

TEST(BenchCase, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 1), 0);
}

TEST(BenchCase, PercentilesByNearestRank) {
  const std::vector<double> samples = {5, 1, 4, 2, 3};
  EXPECT_EQ(percentile(samples, 50), 3);
  EXPECT_EQ(percentile(samples, 95), 5);
  EXPECT_EQ(percentile(samples, 0), 1);
  EXPECT_EQ(percentile({7}, 50), 7);
  EXPECT_EQ(percentile({}, 50), 0);
}

TEST(BenchCase, SizesCountTheWholeTensor) {
  const BenchCase gather = bench_case(Collective::all_gather, Dtype::f32, Op::sum, 1024, 4);
  EXPECT_EQ(gather.count, 64u);
  EXPECT_EQ(input_elements(gather), 64u);
  EXPECT_EQ(output_elements(gather), 256u);
  EXPECT_EQ(bench_bytes(gather), 1024u);
  const BenchCase tiny = bench_case(Collective::reduce_scatter, Dtype::f32, Op::sum, 4, 4);
  EXPECT_EQ(tiny.count, 1u);
  EXPECT_EQ(input_elements(tiny), 4u);
  EXPECT_EQ(bench_bytes(tiny), 16u);
  EXPECT_EQ(bench_bytes(bench_case(Collective::barrier, Dtype::f32, Op::sum, 64, 4)), 0u);
}

// The rank's right result of a reduction, by the tests' own arithmetic.
TensorValues result_of(const BenchCase& bench, uint32_t rank) {
  std::vector<TensorValues> inputs(bench.world_size,
                                   TensorValues(bench.dtype, input_elements(bench)));
  for (uint32_t r = 0; r < bench.world_size; ++r) {
    fill_input(bench, r, inputs[r].bytes);
    scale_slowly(inputs[r], factor_of(bench, r));
  }
  TensorValues all =
      reduced(bench.dtype, {inputs.begin(), inputs.end()}, input_elements(bench), bench.op);
  if (bench.collective != Collective::reduce_scatter) return all;
  const size_t bytes = bench.count * size_of(bench.dtype);
  const auto begin = all.bytes.begin() + static_cast<ptrdiff_t>(rank * bytes);
  return {bench.dtype, Bytes(begin, begin + static_cast<ptrdiff_t>(bytes))};
}

// Counts in the right result, and in one whose elements at `wrong` are 1 more.
void expect_counted(const BenchCase& bench, const std::vector<size_t>& wrong) {
  TensorValues output = result_of(bench, 0);
  EXPECT_EQ(count_wrong(bench, 0, output.bytes), 0u) << name_of(bench.op);
  const size_t size = output.bytes.size() / output.size();
  for (const size_t i : wrong) output.bytes[i * size + size - 1] ^= std::byte{0x10};
  EXPECT_EQ(count_wrong(bench, 0, output.bytes), wrong.size()) << name_of(bench.op);
}

TEST(BenchCase, CountsWrongElementsAndNoOthers) {
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
    const BenchCase bench = bench_case(collective, Dtype::i32, Op::sum, 64 << 10, 3);
    const size_t count = result_of(bench, 0).size();
    expect_counted(bench, {0, count / 2, count - 1});
  }
}

TEST(BenchCase, GathersEveryBlock) {
  const BenchCase bench = bench_case(Collective::all_gather, Dtype::f64, Op::sum, 48 << 10, 3);
  std::vector<double> output(output_elements(bench));
  for (uint32_t r = 0; r < 3; ++r)
    fill_input(bench, r,
               std::as_writable_bytes(std::span(output).subspan(r * bench.count, bench.count)));
  EXPECT_EQ(count_wrong(bench, 1, std::as_bytes(std::span(output))), 0u);
  std::ranges::rotate(output, output.begin() + static_cast<ptrdiff_t>(bench.count));
  EXPECT_GT(count_wrong(bench, 1, std::as_bytes(std::span(output))), bench.count / 4);
}

// Block s of rank 1's output is block 1 of rank s's input.
TEST(BenchCase, ExchangesEveryBlock) {
  const BenchCase bench = bench_case(Collective::all_to_all, Dtype::f64, Op::sum, 48 << 10, 3);
  std::vector<double> input(input_elements(bench));
  std::vector<double> output(output_elements(bench));
  ASSERT_EQ(input.size(), output.size());
  const auto block = static_cast<ptrdiff_t>(bench.count);
  for (uint32_t r = 0; r < 3; ++r) {
    fill_input(bench, r, std::as_writable_bytes(std::span(input)));
    std::copy_n(input.begin() + block, block, output.begin() + r * block);
  }
  EXPECT_EQ(count_wrong(bench, 1, std::as_bytes(std::span(output))), 0u);
  EXPECT_GT(count_wrong(bench, 2, std::as_bytes(std::span(output))), bench.count / 4);
}

TEST(BenchCase, RanksDiffer) {
  for (int op = 0; op < kOps; ++op) {
    const BenchCase bench =
        bench_case(Collective::all_reduce, Dtype::i8, static_cast<Op>(op), 1021, 4);
    std::vector<int8_t> a(1021), b(1021);
    for (uint32_t r = 1; r < 4; ++r) {
      fill_input(bench, 0, std::as_writable_bytes(std::span(a)));
      fill_input(bench, r, std::as_writable_bytes(std::span(b)));
      EXPECT_NE(a, b) << name_of(static_cast<Op>(op)) << " rank " << r;
    }
  }
}

TEST(BenchCase, SixteenBitFloatsCarryTheSameNumbers) {
  const BenchCase half = bench_case(Collective::broadcast, Dtype::f16, Op::max, 4, 1);
  std::vector<uint16_t> f16(40);
  fill_input(half, 0, std::as_writable_bytes(std::span(f16)));
  EXPECT_EQ(f16[0], 0x0000);  // 0
  EXPECT_EQ(f16[1], 0x4700);  // 7
  EXPECT_EQ(f16[9], 0x53e0);  // 63
  const BenchCase brain = bench_case(Collective::broadcast, Dtype::bf16, Op::max, 4, 1);
  fill_input(brain, 0, std::as_writable_bytes(std::span(f16)));
  EXPECT_EQ(f16[1], 0x40e0);  // 7
  EXPECT_EQ(f16[9], 0x427c);  // 63
}

TEST(BenchCase, BitwiseAndPremultipliedResultsAreExact) {
  const std::vector<std::pair<Op, Dtype>> kinds = {{Op::band, Dtype::i32},
                                                   {Op::bor, Dtype::u8},
                                                   {Op::bxor, Dtype::i64},
                                                   {Op::premul_sum, Dtype::f32}};
  for (const auto& [op, dtype] : kinds) {
    const BenchCase bench = bench_case(Collective::all_reduce, dtype, op, 64 << 10, 4);
    expect_counted(bench, {5});
    const TensorValues right = result_of(bench, 0);
    size_t differ = 0;
    for (size_t i = 0; i < right.size(); ++i) differ += right.at(i) != right.at(0);
    EXPECT_GT(differ, 0u) << name_of(op);
  }
  const BenchCase sum = bench_case(Collective::all_reduce, Dtype::f32, Op::sum, 64, 4);
  const BenchCase premul = bench_case(Collective::all_reduce, Dtype::f32, Op::premul_sum, 64, 4);
  EXPECT_EQ(factor_of(sum, 1), 1);
  EXPECT_NE(factor_of(premul, 0), factor_of(premul, 1));
}

// Or, and, exclusive or; as bytes of 0 or 1.
TEST(BenchCase, BoolsAreAnyOrAllOrParity) {
  for (int op = 0; op < kOps; ++op) {
    if (!applies_to(static_cast<Op>(op), Dtype::boolean)) continue;
    const BenchCase bench =
        bench_case(Collective::all_reduce, Dtype::boolean, static_cast<Op>(op), 5000, 3);
    for (uint32_t r = 0; r < 3; ++r) {
      Bytes input(5000);
      fill_input(bench, r, input);
      EXPECT_LE(std::ranges::max(input), std::byte{1});
    }
    TensorValues output = result_of(bench, 0);
    EXPECT_EQ(count_wrong(bench, 0, output.bytes), 0u) << op;
    output.bytes[7] ^= std::byte{1};
    output.bytes[4999] = std::byte{2};
    EXPECT_EQ(count_wrong(bench, 0, output.bytes), 2u) << op;
  }
}

TEST(BenchCase, OnlyTheRootOfAReduceOrGatherHasAResult) {
  BenchCase bench = bench_case(Collective::reduce, Dtype::f32, Op::sum, 64, 4);
  bench.root = 2;
  EXPECT_TRUE(has_output(bench, 2));
  EXPECT_FALSE(has_output(bench, 0));
  bench.collective = Collective::gather;
  EXPECT_TRUE(has_output(bench, 2));
  EXPECT_FALSE(has_output(bench, 0));
  EXPECT_TRUE(has_output(bench_case(Collective::broadcast, Dtype::f32, Op::sum, 64, 4), 0));
  EXPECT_FALSE(has_output(bench_case(Collective::barrier, Dtype::f32, Op::sum, 0, 4), 0));
}

}  // namespace
}  // namespace tutti

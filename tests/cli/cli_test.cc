// The command line's pure half: sizes, rates, tables, JSON, what a bench sends and expects.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "daemon/base/text.h"
#include "daemon/bench/bench.h"
#include "daemon/cli/status_report.h"

namespace tutti {
namespace {

TEST(CliText, ByteSizes) {
  EXPECT_EQ(*parse_byte_size("4"), 4u);
  EXPECT_EQ(*parse_byte_size("64K"), 65536u);
  EXPECT_EQ(*parse_byte_size("1MiB"), 1048576u);
  EXPECT_EQ(*parse_byte_size("2g"), 2147483648u);
  for (const char* bad : {"", "x", "4T", "-1", "1.5M", "99999999999999999999", "17179869184G"})
    EXPECT_EQ(parse_byte_size(bad).status().code(), Code::invalid_argument) << bad;
  EXPECT_NE(parse_byte_size("4 apples").status().message().find("4 apples"), std::string::npos);
  EXPECT_EQ(format_byte_size(0), "0 B");
  EXPECT_EQ(format_byte_size(65536), "64 KiB");
  EXPECT_EQ(format_byte_size(3 << 29), "1.50 GiB");
}

TEST(CliText, Rates) {
  EXPECT_EQ(*parse_rate("1gbit"), 1'000'000'000u);
  EXPECT_EQ(*parse_rate("250Mbit"), 250'000'000u);
  for (const char* bad : {"1", "1g", "gbit", "0gbit", "1gbps"})
    EXPECT_EQ(parse_rate(bad).status().code(), Code::invalid_argument) << bad;
}

TEST(CliText, RanksPerHost) {
  EXPECT_EQ(*parse_per_host("2", 3), (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(*parse_per_host("3,1", 2), (std::vector<int>{3, 1}));
  for (const char* bad : {"", "0", "2,", "1,2,3", "x", "-1", "1025"})
    EXPECT_EQ(parse_per_host(bad, 2).status().code(), Code::invalid_argument) << bad;
}

TEST(CliText, HostNamesGoOnAfterZ) {
  EXPECT_EQ(host_name(0), "a");
  EXPECT_EQ(host_name(25), "z");
  EXPECT_EQ(host_name(26), "aa");
  EXPECT_EQ(host_name(27), "ab");
  EXPECT_EQ(host_name(701), "zz");
  EXPECT_EQ(host_name(702), "aaa");
}

TEST(CliText, Numbers) {
  EXPECT_EQ(format_number(0), "0");
  EXPECT_EQ(format_number(0.046), "0.05");
  EXPECT_EQ(format_number(12.345), "12.35");
  EXPECT_EQ(format_number(123.45), "123.5");
  EXPECT_EQ(format_number(123456.7), "123457");
}

TEST(CliText, TableLeansNumbersRightAndWordsLeft) {
  Table table({"size", "op"});
  table.add({"4", "sum"});
  table.add({"1048576", "none"});
  EXPECT_EQ(table.text(),
            "   size  op\n"
            "      4  sum\n"
            "1048576  none\n");
}

TEST(CliText, JsonNestsAndEscapes) {
  Json json;
  json.open('{').key("a").text("q\"\\\n").key("b").open('[').number(uint64_t{1}).number(0.5);
  json.open('{').close().boolean(true).close().key("c").number(uint64_t{2}).close();
  EXPECT_EQ(json.line(), R"({"a":"q\"\\\u000a","b":[1,0.5,{},true],"c":2})");
}

TEST(CliBench, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 1), 0);
}

TEST(CliBench, PercentilesByNearestRank) {
  const std::vector<double> samples = {5, 1, 4, 2, 3};
  EXPECT_EQ(percentile(samples, 50), 3);
  EXPECT_EQ(percentile(samples, 95), 5);
  EXPECT_EQ(percentile(samples, 0), 1);
  EXPECT_EQ(percentile({7}, 50), 7);
  EXPECT_EQ(percentile({}, 50), 0);
}

TEST(CliBench, SizesCountTheWholeTensor) {
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

// Integers alone: a reduction written again here, element by element.
std::vector<int32_t> reduced(const BenchCase& bench, uint32_t rank) {
  std::vector<int32_t> sum(input_elements(bench));
  std::vector<int32_t> input(sum.size());
  for (uint32_t r = 0; r < bench.world_size; ++r) {
    fill_input(bench, r, std::as_writable_bytes(std::span(input)));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += input[i];
  }
  if (bench.collective != Collective::reduce_scatter) return sum;
  const auto begin = sum.begin() + static_cast<ptrdiff_t>(rank * bench.count);
  return {begin, begin + static_cast<ptrdiff_t>(bench.count)};
}

TEST(CliBench, CountsWrongElementsAndNoOthers) {
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
    const BenchCase bench = bench_case(collective, Dtype::i32, Op::sum, 64 << 10, 3);
    std::vector<int32_t> output = reduced(bench, 0);
    EXPECT_EQ(count_wrong(bench, 0, std::as_bytes(std::span(output))), 0u);
    output.front() += 1;
    output[output.size() / 2] -= 3;
    output.back() ^= 4;
    EXPECT_EQ(count_wrong(bench, 0, std::as_bytes(std::span(output))), 3u);
  }
}

TEST(CliBench, GathersEveryBlock) {
  const BenchCase bench = bench_case(Collective::all_gather, Dtype::f64, Op::sum, 48 << 10, 3);
  std::vector<double> output(output_elements(bench));
  for (uint32_t r = 0; r < 3; ++r)
    fill_input(bench, r,
               std::as_writable_bytes(std::span(output).subspan(r * bench.count, bench.count)));
  EXPECT_EQ(count_wrong(bench, 1, std::as_bytes(std::span(output))), 0u);
  std::ranges::rotate(output, output.begin() + static_cast<ptrdiff_t>(bench.count));
  EXPECT_GT(count_wrong(bench, 1, std::as_bytes(std::span(output))), bench.count / 4);
}

TEST(CliBench, RanksDiffer) {
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

TEST(CliBench, SixteenBitFloatsCarryTheSameNumbers) {
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

// Or, and; as bytes of 0 or 1.
TEST(CliBench, BoolsAreAnyOrAll) {
  for (int op = 0; op < kOps; ++op) {
    if (static_cast<Op>(op) == Op::mean) continue;
    const BenchCase bench =
        bench_case(Collective::all_reduce, Dtype::boolean, static_cast<Op>(op), 5000, 3);
    const bool all = bench.op == Op::prod || bench.op == Op::min;
    std::vector<uint8_t> output(5000, all ? 1 : 0);
    for (uint32_t r = 0; r < 3; ++r) {
      std::vector<uint8_t> input(5000);
      fill_input(bench, r, std::as_writable_bytes(std::span(input)));
      EXPECT_LE(std::ranges::max(input), 1);
      for (size_t i = 0; i < 5000; ++i)
        output[i] = all ? output[i] & input[i] : output[i] | input[i];
    }
    EXPECT_EQ(count_wrong(bench, 0, std::as_bytes(std::span(output))), 0u) << op;
    output[7] ^= 1;
    output[4999] = 2;
    EXPECT_EQ(count_wrong(bench, 0, std::as_bytes(std::span(output))), 2u) << op;
  }
}

TEST(CliBench, OnlyTheRootOfAReduceHasAResult) {
  BenchCase bench = bench_case(Collective::reduce, Dtype::f32, Op::sum, 64, 4);
  bench.root = 2;
  EXPECT_TRUE(has_output(bench, 2));
  EXPECT_FALSE(has_output(bench, 0));
  EXPECT_TRUE(has_output(bench_case(Collective::broadcast, Dtype::f32, Op::sum, 64, 4), 0));
  EXPECT_FALSE(has_output(bench_case(Collective::barrier, Dtype::f32, Op::sum, 0, 4), 0));
}

v1::StatusReply example_status() {
  v1::StatusReply reply;
  v1::AgentReport* agent = reply.add_agents();
  agent->set_host("a");
  agent->set_address("127.0.0.1:7601");
  agent->set_pid(11);
  agent->set_state("serving");
  agent->set_coordinator(true);
  agent->set_version("0.1.0");
  agent->set_uptime_ms(61'000);
  v1::WorkerReport* worker = agent->add_workers();
  worker->set_job("demo");
  worker->set_world_size(2);
  worker->set_epoch(1);
  worker->set_state("running");
  worker->set_operations(12);
  worker->set_bytes(4096);
  worker->add_ranks()->set_rank(0);
  worker->mutable_departures()->add_ranks(1);
  return reply;
}

TEST(CliStatus, ForPeople) {
  const std::string text = status_text(example_status());
  EXPECT_NE(text.find("a*    127.0.0.1:7601"), std::string::npos) << text;
  EXPECT_NE(text.find("61 s"), std::string::npos) << text;
  EXPECT_NE(text.find("0 of 2"), std::string::npos) << text;
  EXPECT_NE(text.find("4 KiB"), std::string::npos) << text;
  EXPECT_NE(status_text({}).find("no jobs"), std::string::npos);
}

TEST(CliStatus, ForPrograms) {
  const std::string json = status_json(example_status());
  EXPECT_NE(json.find(R"("host":"a","address":"127.0.0.1:7601","pid":11)"), std::string::npos);
  EXPECT_NE(json.find(R"("operations":12)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("ranks":[{"rank":0,"pid":0,)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("gone":[1])"), std::string::npos) << json;
  EXPECT_EQ(std::ranges::count(json, '{'), std::ranges::count(json, '}'));
  EXPECT_EQ(status_json({}), R"({"agents":[]})");
}

}  // namespace
}  // namespace tutti

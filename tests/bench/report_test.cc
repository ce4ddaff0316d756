// What `tutti bench` prints.
#include <gtest/gtest.h>

#include "daemon/bench/bench.h"

namespace tutti {
namespace {

TEST(BenchReport, AComparisonShowsTheFirstOverTheBestOfTheOthers) {
  CompareRow row;
  row.bench = bench_case(Collective::all_reduce, Dtype::f32, Op::sum, 4096, 4);
  row.hosts = 2;
  row.strategies = {"auto", "ring", "tree:2"};
  row.p50_us = {110, 200, 100};
  EXPECT_EQ(bench_heading(row),
            "# all_reduce, 4 ranks on 2 hosts: time (us) of each strategy, in turn\n"
            "         size        count         auto         ring       tree:2         best    "
            "auto/best       #wrong\n");
  EXPECT_EQ(
      bench_line(row),
      "         4096         1024          110          200          100       tree:2         "
      "1.10            0\n");
  EXPECT_EQ(bench_json(row),
            R"({"op":"all_reduce","hosts":2,"per_host":2,"bytes":4096,"p50_us":{"auto":110,)"
            R"("ring":200,"tree:2":100},"best":"tree:2","ratio":1.1,"wrong":0})"
            "\n");
}

TEST(BenchReport, OnGpusTheCopyOfAllTensorsStandsBesideTheCollective) {
  BenchRow row;
  row.bench = bench_case(Collective::all_reduce, Dtype::f32, Op::sum, 1'000'000, 4);
  row.strategy = "ring";
  row.p50_us = 100;
  row.gpus = 2;
  row.gpu_model = "H100";
  row.copy_us = 50;  // 8 MB read or written.
  EXPECT_EQ(bench_heading(row),
            "# all_reduce, strategy ring, 4 ranks on 1 host, buffers on 2 GPUs (H100)\n"
            "        size        count  type  redop  root       time    algbw    busbw  #wrong"
            "      copy  of copy\n"
            "         (B)   (elements)                          (us)   (GB/s)   (GB/s)        "
            "    (GB/s)\n");
  EXPECT_EQ(bench_line(row),
            "     1000000       250000   f32    sum    -1        100       10       15       0"
            "       160     0.50\n");
  const std::string json = bench_json(row);
  EXPECT_NE(json.find(R"("buffers":"cuda")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("gpus":2,"gpu":"H100","copy_us":50,"copy_GBs":160,"of_copy":0.5})"),
            std::string::npos)
      << json;
}

}  // namespace
}  // namespace tutti

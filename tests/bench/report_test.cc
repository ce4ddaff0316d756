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

}  // namespace
}  // namespace tutti

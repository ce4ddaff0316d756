// One rank of a bench: joins through the client library, runs every case, checks every result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/bench/bench_math.h"

namespace tutti {

struct BenchPlan {
  std::vector<Collective> collectives;
  std::vector<std::string> strategies;  // As the client library reads them.
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  uint64_t bytes_min = 0;
  uint64_t bytes_max = 0;
  uint64_t factor = 2;
  uint32_t iterations = 0;  // 0: chosen by time, the same on all ranks.
  uint32_t warmup = 0;
  bool zero_copy = true;
  bool json = false;
  bool compare = false;  // All strategies of a size in turn, round by round.
};

// What rank 0 prints of one case.
struct BenchRow {
  BenchCase bench;
  std::string strategy;
  uint32_t hosts = 1;
  std::string transport;  // Between hosts, or "shm".
  bool zero_copy = true;
  uint32_t iterations = 0;
  double p50_us = 0;  // Over iterations, of the slowest rank in each.
  double p95_us = 0;
  double cpu_s_per_op = 0;  // All ranks, workers and agents together.
  uint64_t wrong = 0;       // Elements, over all ranks.
};

// What rank 0 prints of one size under several strategies.
struct CompareRow {
  BenchCase bench;
  uint32_t hosts = 1;
  std::vector<std::string> strategies;
  std::vector<double> p50_us;  // Of each.
  uint64_t wrong = 0;
};
std::string bench_heading(const CompareRow& row);
// The strategies' times, and the first one's over the best of the others.
std::string bench_line(const CompareRow& row);
std::string bench_json(const CompareRow& row);

std::string bench_heading(const BenchRow& row);  // Before the rows of a collective and strategy.
std::string bench_line(const BenchRow& row);     // nccl-tests' columns.
std::string bench_json(const BenchRow& row);

// Returns OK where every element was right; prints on rank 0 alone.
Status run_bench_rank(const BenchPlan& plan);

}  // namespace tutti

// The rows that `tutti bench` prints, for people and for programs. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/bench/bench_case.h"

namespace tutti {

// One case under one strategy.
struct BenchRow {
  BenchCase bench;
  std::string strategy;
  uint32_t hosts = 1;
  std::string transport;  // Between hosts, or "shm".
  bool zero_copy = true;
  uint32_t gpus = 0;      // That hold the tensors; 0: they are on the host.
  std::string gpu_model;  // Of rank 0.
  uint32_t iterations = 0;
  double p50_us = 0;  // Over the iterations, of the slowest rank's time in each.
  double p95_us = 0;
  double cpu_s_per_op = 0;  // Of all ranks, workers and agents together.
  uint64_t wrong = 0;       // Elements, over all ranks.
  double copy_us = 0;       // In which the GPUs copy the tensor once a rank; 0: on the host.
};

// One case under several strategies in turn: --compare.
struct CompareRow {
  BenchCase bench;
  uint32_t hosts = 1;
  std::vector<std::string> strategies;
  std::vector<double> p50_us;  // Of each strategy.
  uint64_t wrong = 0;
};

std::string bench_heading(const BenchRow& row);  // Printed before the sizes of a collective.
// The columns of nccl-tests. On GPUs two more: what the copies move, reads and writes, and their
// time over the collective's.
std::string bench_line(const BenchRow& row);
std::string bench_json(const BenchRow& row);  // One object on one line.

std::string bench_heading(const CompareRow& row);
// The strategies' times, and the first one's divided by the best of the others.
std::string bench_line(const CompareRow& row);
std::string bench_json(const CompareRow& row);

}  // namespace tutti

// One rank of a bench: joins through the client library, times every case and checks every result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "proto/types.h"

namespace tutti {

struct BenchPlan {
  std::vector<Collective> collectives;
  std::vector<std::string> strategies;  // As the client library reads them.
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  uint64_t bytes_min = 0;
  uint64_t bytes_max = 0;
  uint64_t factor = 2;      // From one size to the next.
  uint32_t iterations = 0;  // 0: as many as half a second takes, the same on all ranks.
  uint32_t warmup = 0;
  bool zero_copy = true;
  bool json = false;
  bool compare = false;  // Run the strategies in turn, round by round.
};

// Runs the plan as the rank that TUTTI_* in the environment names; rank 0 prints the rows.
// DATA_LOSS where an element of a result was wrong.
Status run_bench_rank(const BenchPlan& plan);

}  // namespace tutti

// One rank of a bench: joins through the client library, times every case and checks every result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "proto/types.h"

namespace tutti {

enum class BenchDevice { host, cuda };

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
  BenchDevice device = BenchDevice::host;  // Where the tensors are.
  bool zero_copy = true;                   // On the host.
  bool json = false;
  bool compare = false;  // Run the strategies in turn, round by round.
};

// Whether this machine has what the plan needs. UNAVAILABLE: there is no driver of its device.
Status check_bench_device(const BenchPlan& plan);

// Runs the plan as the rank that TUTTI_* in the environment names; rank 0 prints the rows.
// DATA_LOSS where an element of a result was wrong.
Status run_bench_rank(const BenchPlan& plan);

}  // namespace tutti

// The predictions of `tutti plan`, and their output. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/tuning/tuning.h"

namespace tutti {

struct PlanQuestion {
  Collective collective = Collective::all_reduce;
  uint64_t bytes = 0;
  std::vector<int> hosts;
  int per_host = 1;
  LinkCost link;
  std::string source;  // Of `link`, for people: "as given", "measured by job demo".
};

struct PlanRow {
  int hosts = 1;
  int ranks = 1;
  Strategy strategy;
  Prediction prediction;
  bool best = false;  // The fastest strategy for this number of hosts.
};

// The powers of two from 8 to 4,096.
std::vector<int> usual_host_counts();
// Converts microseconds and Gbit/s. INVALID_ARGUMENT where either is not above 0.
Result<LinkCost> link_cost_of(double link_us, double link_gbps);

// Returns a row per number of hosts and strategy, in the order of hosts, then time.
std::vector<PlanRow> plan_rows(const PlanQuestion& question);
std::string plan_text(const PlanQuestion& question, const std::vector<PlanRow>& rows);
// One JSON object on one line: {"op":...,"bytes":...,"plans":[{"hosts":8,"strategy":...}]}.
std::string plan_json(const PlanQuestion& question, const std::vector<PlanRow>& rows);

}  // namespace tutti

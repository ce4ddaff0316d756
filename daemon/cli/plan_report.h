// What `tutti plan` predicts, and how it shows it. Pure.
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
  bool best = false;  // Of its number of hosts.
};

// 8 to 4,096.
std::vector<int> usual_host_counts();
// "50" us and "100" Gbit/s as a cost. INVALID_ARGUMENT where either is not above 0.
Result<LinkCost> link_cost_of(double link_us, double link_gbps);

// By number of hosts, then by time.
std::vector<PlanRow> plan_rows(const PlanQuestion& question);
std::string plan_text(const PlanQuestion& question, const std::vector<PlanRow>& rows);
// One JSON object on one line: {"op":...,"bytes":...,"plans":[{"hosts":8,"strategy":...}]}.
std::string plan_json(const PlanQuestion& question, const std::vector<PlanRow>& rows);

}  // namespace tutti

// The predictions of `tutti plan`, and their output. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/tuning/tuning.h"

namespace tutti {

// Each host. The rates are what docs/measuring.md#what-tutti-plan-assumes was measured to be.
struct PlanHost {
  int cores = 32;
  std::string streams = "auto";  // As the setting data_streams.
  double stream_gbps = 40;       // Into and out of sockets, by one thread.
  double fold_gbps = 80;         // Read and written by one core that folds.
  double memory_gbps = 800;      // Read and written by all cores together.
};

struct PlanQuestion {
  Collective collective = Collective::all_reduce;
  uint64_t bytes = 0;
  std::vector<int> hosts;
  int per_host = 1;
  LinkCost link;
  std::string source;  // Of `link`, for people: "as given", "measured by job demo".
  PlanHost host;
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
// INVALID_ARGUMENT where a worker could not have so many streams, or a rate is not above 0.
Status check_host(const PlanHost& host);
// One of `hosts` hosts, with the threads that a worker has by default and ranks that wait.
HostCost host_cost_of(const PlanHost& host, int hosts, int per_host);

// Returns a row per number of hosts and strategy, in the order of hosts, then time.
std::vector<PlanRow> plan_rows(const PlanQuestion& question);

// What another number of streams or cores would make of the fastest row of the most hosts.
struct PlanGain {
  std::string option;  // "--streams 8"
  double us = 0;
};
// The least numbers that come close to the best; only gains of more than 10 %.
std::vector<PlanGain> plan_gains(const PlanQuestion& question);
std::string plan_text(const PlanQuestion& question, const std::vector<PlanRow>& rows);
// One JSON object on one line: {"op":...,"bytes":...,"plans":[{"hosts":8,"strategy":...}]}.
std::string plan_json(const PlanQuestion& question, const std::vector<PlanRow>& rows);

}  // namespace tutti

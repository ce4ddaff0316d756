// The commands of `tutti`. Each returns the process's exit code: 0 OK, 1 failure, 2 usage; `run`
// that of the rank that failed first. Errors go to standard error, one line, saying what to do
// next.
//
// main.cc reads the command line into these options; nothing else knows CLI11.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "proto/types.h"

namespace tutti {

inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

struct RunOptions {
  int hosts = 1;
  std::string per_host = "1";  // Ranks on each host: "2", or one number a host: "3,1".
  bool netns = false;
  std::string rate;  // Of a host's link, as tc writes it; empty: no limit.
  bool keep_going = false;
  bool label = false;
  bool announce = true;  // Say on standard error how to ask the mesh what it does.
  std::string job = "run";
  std::string log_dir;
  std::vector<std::string> command;
};
int run_command(const RunOptions& options);

struct BenchOptions {
  std::vector<std::string> collectives = {"all_reduce"};
  std::string dtype = "f32";
  std::string op = "sum";
  std::vector<std::string> strategies = {"auto"};  // A pair is spelt "LOCAL+GLOBAL".
  std::string bytes_min = "4";
  std::string bytes_max = "64M";
  uint32_t factor = 4;
  uint32_t iterations = 0;  // 0: as many as half a second takes, 5 to 1000.
  uint32_t warmup = 5;
  bool zero_copy = true;
  bool json = false;
  bool compare = false;  // The first strategy with the others, in turn.
};
// With TUTTI_RANK in the environment, as one rank of a job; else on a mesh that `mesh` describes,
// running this program with the same `arguments` once a rank.
int bench_command(const BenchOptions& options, RunOptions mesh, std::vector<std::string> arguments);

struct StatusOptions {
  std::string address;
  bool json = false;
};
int status_command(const StatusOptions& options);

struct ExplainOptions {
  std::string address;
  std::string job;
  bool strategy = true;  // All there is to explain so far.
  bool json = false;
};
int explain_command(const ExplainOptions& options);

struct PlanOptions {
  std::string collective = "all_reduce";
  std::string bytes = "1G";
  std::vector<int> hosts;  // Empty: 8 to 4,096.
  int per_host = 1;
  double link_us = 50;
  double link_gbps = 100;
  std::string job;  // Takes the links as this job measured them.
  std::string address;
  bool json = false;
};
int plan_command(const PlanOptions& options);

int strategy_command(const std::string& address, const std::string& job, const std::string& text);
int drain_command(const std::string& address, bool undo);
int stop_command(const std::string& address, bool jobs);

// Prints "tutti: <message>" and gives the exit code that belongs to the code: 2 for
// INVALID_ARGUMENT, else 1.
int report_failure(const Status& status);

}  // namespace tutti

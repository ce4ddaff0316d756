// The commands of `tutti` and their options, which main.cc reads. Each returns the exit code: 0 OK,
// 1 failure, 2 usage; `run` that of the rank that failed first. An error is one line on standard
// error that says what to do next.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/status.h"
#include "daemon/cli/plan_report.h"
#include "proto/types.h"

namespace tutti {

inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kCallTimeoutMs = 10'000;  // Of calls to an agent.

struct RunOptions {
  int hosts = 1;
  std::string per_host = "1";  // Ranks on each host: "2", or one number per host: "3,1".
  bool netns = false;
  std::string rate;                 // Of a host's link, as tc writes it; empty: no limit.
  std::optional<std::string> gpus;  // Of each rank: "2" or "auto"; else all that are visible.
  bool keep_going = false;
  bool label = false;
  bool announce = true;  // Print how to ask for the mesh's status.
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
  std::string device = "host";  // Where the tensors are: "host" or "cuda".
  bool zero_copy = true;
  bool json = false;
  bool compare = false;  // The first strategy with the others, round by round.
};
// Runs as one rank of a job where TUTTI_RANK is set; else starts the mesh that `mesh` describes and
// this program with the same `arguments` once per rank.
int bench_command(const BenchOptions& options, RunOptions mesh, std::vector<std::string> arguments);

struct StatusOptions {
  std::string address;
  bool json = false;
};
int status_command(const StatusOptions& options);

struct StrategyOptions {
  std::string address;
  std::string job;
  std::string strategy;  // To set; empty: shows what auto has measured, and chooses.
  bool json = false;
};
int strategy_command(const StrategyOptions& options);

struct TraceOptions {
  std::string address;
  std::string job;
  std::optional<uint32_t> last;  // Operations; 0: all that are kept.
  bool json = false;
  std::string chrome;  // A file to write; empty: none.
  std::string torch;   // A directory to write to; empty: none.
};
int trace_command(const TraceOptions& options);

struct PlanOptions {
  std::string collective = "all_reduce";
  std::string bytes = "1G";
  std::vector<int> hosts;  // Empty: 8 to 4,096.
  int per_host = 1;
  double link_us = 50;
  double link_gbps = 100;
  PlanHost host;
  std::string job;  // If set, use the links that this job measured.
  std::string address;
  bool json = false;
};
int plan_command(const PlanOptions& options);

struct ExplainOptions {
  std::string address;
  std::string job;
  bool json = false;
};
// 1 where something is the matter, 2 where there is no such job.
int explain_command(const ExplainOptions& options);

struct JobsOptions {
  std::string address;
  bool all = false;  // Also those that ended.
  bool json = false;
};
int jobs_command(const JobsOptions& options);

struct TopOptions {
  std::string address;
  std::string job;  // The ranks of this job alone; empty: of all.
  bool once = false;
};
int top_command(const TopOptions& options);

struct DrainOptions {
  std::string address;
  bool undo = false;
  bool wait = false;                   // Until the node has no job.
  std::optional<std::string> timeout;  // Of that, such as "10m".
};
int drain_command(const DrainOptions& options);

struct StopOptions {
  std::string address;
  std::string job;    // Empty: the agent,
  bool jobs = false;  // and its jobs.
};
int stop_command(const StopOptions& options);

struct DoctorFlags {
  std::string config;
  std::map<std::string, std::string> values;  // By setting.
  std::string address;                        // Empty: the socket of the settings.
  bool json = false;
};
// 1 where a check fails.
int doctor_command(const DoctorFlags& flags);

// Returns 0 for OK; else prints "tutti: <message>" and returns 2 for INVALID_ARGUMENT, 1 for
// others.
int report_status(const Status& status);

// `status`; if it is NOT_FOUND, with the name of the job that the agent at `address` knows and that
// is spelt most like `job`.
Status suggest_job(const Status& status, const std::string& address, const std::string& job);

}  // namespace tutti

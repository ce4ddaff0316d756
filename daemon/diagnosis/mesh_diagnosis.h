// What is found of a whole mesh: its nodes, and each job with its ranks. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/diagnosis/job_diagnosis.h"
#include "daemon/diagnosis/job_owners.h"
#include "proto/mesh.pb.h"

namespace tutti {

struct RankDiagnosis {
  uint32_t rank = 0;
  std::string doing;    // "waits for rank 3", "in all_reduce #17"; empty: between operations.
  bool waits = false;   // For ranks that are known not to have called what it is in.
  uint64_t behind = 0;  // Operations that others have waited for; see Verdict::behind.
  std::optional<double> late_s;  // Against the middle one of the others, in the median.
  bool is_late = false;          // See Verdict::late_rank.
};

using JobKey = std::pair<std::string, JobOwner>;  // Users may have jobs of one name.
JobKey key_of(const v1::WorkerReport& worker);

struct JobDiagnosis {
  JobKey key;
  Diagnosis diagnosis;
  std::vector<RankDiagnosis> ranks;  // Those that are there, joined or joining; ascending.
  std::vector<uint32_t> gone;        // Of the newest epoch; ascending.
  uint32_t missing = 0;              // Neither there nor gone.
};

struct Alarm {
  std::string subject;  // "Node b", "GPU 1 of a", "Job demo".
  std::string finding;  // "is unreachable: ...", a sentence.
};

struct MeshDiagnosis {
  std::vector<Alarm> alarms;       // Of nodes, GPUs and jobs that FAIL.
  std::vector<Grade> nodes;        // In the order of the report.
  std::vector<JobDiagnosis> jobs;  // That have a worker; by key.
  std::vector<JobKey> failed;      // That have none any more, and ended so; by key.
  // The host whose agent coordinates by another host's name, with no other agent, while ranks wait
  // for others; empty: none. An alias of its own looks the same.
  std::string doubtful_coordinator;
};

// How far the agent's clock is ahead of the coordinator's; below 0: behind; 0: not known. Reports
// are made within a second or two of each other.
int64_t clock_ahead_ms(const v1::StatusReply& status, const v1::AgentReport& agent);

// As diagnose(), of all jobs: `trace` should be taken before `status`.
MeshDiagnosis diagnose_mesh(const v1::StatusReply& status, const v1::TraceReply& trace);

// Jobs and nodes, the worst first, and in the last line how many there are of each.
std::string mesh_diagnosis_text(const MeshDiagnosis& mesh);
// FAIL where a job, a node or a GPU does; WARN where a job does.
Grade grade_of(const MeshDiagnosis& mesh);

// {"alarms":[{"subject":...,"finding":...}],"nodes":["OK"],"jobs":[{"job":...,"uid":...,
// "subject":...,"verdict":...,"healthy":...,"sentence":...,"evidence":[...],"grade":"OK",
// "ranks":[{"rank":...,"doing":...,"waits":...,"behind":...,"late":...,"late_us":...}],
// "gone":[...],"missing":...}]} on one line. No late_us: it is not known.
std::string mesh_diagnosis_json(const MeshDiagnosis& mesh);

}  // namespace tutti

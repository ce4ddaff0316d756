// The jobs of a mesh, with those that ended, as text and as JSON. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/diagnosis/diagnosis.h"
#include "proto/mesh.pb.h"

namespace tutti {

struct JobRow {
  JobKey key;
  std::string state;      // The verdict; of one that ended "ok", "failed", "stopped".
  std::string hosts;      // "a,b", where it has or had workers.
  uint32_t ranks = 0;     // That the job is to have.
  int64_t ended_ms = -1;  // Since it ended; -1: it runs.
  uint32_t epoch = 0;     // Its last, where it ended.
  std::string finding;    // A sentence.
};

// Those that run, by name; with `all` also those that ended, the latest first.
std::vector<JobRow> jobs_of(const v1::StatusReply& status, const MeshDiagnosis& mesh, bool all);
std::string jobs_text(const std::vector<JobRow>& jobs);
// {"jobs":[{"job":...,"uid":...,"subject":...,"state":...,"hosts":...,"ranks":...,"ended_s":...,
// "finding":...}]} on one line; no ended_s: it runs.
std::string jobs_json(const std::vector<JobRow>& jobs);

}  // namespace tutti

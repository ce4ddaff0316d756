// The figures of a node in Prometheus' text format. Pure.
#pragma once

#include <span>
#include <string>

#include "daemon/diagnosis/diagnosis.h"
#include "daemon/http/http.h"

namespace tutti {

struct MetricsScope {
  bool named = false;    // Also what names jobs and users.
  bool is_ready = true;  // What /readyz says.
  bool per_rank = true;  // A series for each rank; else one for each job on the node.
};

// Series of what is not in the report are not there.
std::string metrics_text(const v1::AgentReport& report, std::span<const RecordedJob> recorded,
                         const MetricsScope& scope);

// What is found of the nodes and jobs of `status`. From the coordinator alone, because each finding
// is to be counted once. `named`: also what names jobs and users.
std::string findings_text(const v1::StatusReply& status, const MeshDiagnosis& mesh, bool named);

}  // namespace tutti

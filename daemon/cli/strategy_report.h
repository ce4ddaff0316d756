// The output of `tutti strategy JOB`, for people and for programs. Pure.
#pragma once

#include <string>

#include "proto/mesh.pb.h"

namespace tutti {

// Returns the report of the job's leader, the only worker whose report has `tuning`; null without
// one.
const v1::WorkerReport* find_leader(const v1::StatusReply& reply, const std::string& job);

// Two tables: times by size and strategy, then links.
std::string strategy_text(const v1::WorkerReport& leader);
// One JSON object on one line: {"job":...,"strategies":[...],"links":[...]}.
std::string strategy_json(const v1::WorkerReport& leader);

}  // namespace tutti

// What `tutti explain` shows of a job, for people and for programs. Pure.
#pragma once

#include <string>

#include "proto/mesh.pb.h"

namespace tutti {

// The report of the worker that decides for the job: it alone has a `tuning`. Null: there is none.
const v1::WorkerReport* find_leader(const v1::StatusReply& reply, const std::string& job);

// Two tables: sizes with a line a strategy, then links.
std::string explain_text(const v1::WorkerReport& leader);
// One JSON object on one line: {"job":...,"strategies":[...],"links":[...]}.
std::string explain_json(const v1::WorkerReport& leader);

}  // namespace tutti

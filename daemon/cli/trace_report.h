// The output of `tutti trace`, for people and for programs. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "proto/mesh.pb.h"

namespace tutti {

// A table with a line for each of the last `last` operations (0: all), and what else there is to
// say: agents that did not answer, operations that were left out.
std::string trace_text(const v1::TraceReply& reply, uint64_t last);
// One JSON object on one line:
// {"hosts":[{"host":...,"epoch":...,"ended":...,"cut":...}],"missing":[...],"operations":[{"epoch":
// ...,"group":...,"number":...,...,"ranks":[...],"hosts":[...],"waits_for":[...]}]}.
std::string trace_json(const v1::TraceReply& reply, uint64_t last);

// Trace events for chrome://tracing and Perfetto: a process for each host, with tracks for each
// rank and for the work among hosts. Operations of a rank that overlap are on tracks of their own.
std::string trace_chrome(const v1::TraceReply& reply);

// By rank: what torch's flight recorder would write, for `torchfrtrace`, as a pickle. For the
// newest epoch of one job: of the first of owners_of().
std::map<uint32_t, std::string> trace_torch(const v1::TraceReply& reply);

}  // namespace tutti

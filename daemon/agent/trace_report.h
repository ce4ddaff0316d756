// Answers what the flight recorders of this host hold.
#pragma once

#include <span>
#include <string>

#include "daemon/agent/traces.h"
#include "daemon/trace/trace.h"
#include "proto/mesh.pb.h"

namespace tutti {

// Reads the recorders; any thread. Those of other owners than the request's are left out, and each
// ring's oldest operations where the reply would be longer than the request allows.
v1::TraceReply answer_trace(std::span<const KeptRecorder> recorders,
                            const v1::TraceRequest& request, const std::string& host);

// Fills in all but the host and whose it is. Pure.
void report_trace(const trace::Trace& trace, v1::HostTrace& report);

// Leaves of each job its newest epoch: of those that run, if there are any, since a job that began
// again may have a smaller number than what is kept of it on hosts that have no part in it now.
void keep_newest_epochs(v1::TraceReply& reply);

}  // namespace tutti

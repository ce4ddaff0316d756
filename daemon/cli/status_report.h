// The output of `tutti status` for people; status_json() is that for programs. Pure.
#pragma once

#include <string>

#include "proto/mesh.pb.h"

namespace tutti {

// Tables: agents, their GPUs where any has some, jobs with a line per host, and what their users
// have of each host beside their limits.
std::string status_text(const v1::StatusReply& reply);

// "2 jobs: demo (ranks 0,1 of 4), bert (ranks - of 2)"; empty: there is none.
std::string jobs_text(const v1::StatusReply& reply);

}  // namespace tutti

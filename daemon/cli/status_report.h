// The output of `tutti status`, for people and for programs. Pure.
#pragma once

#include <string>

#include "proto/mesh.pb.h"

namespace tutti {

// Tables: agents, their GPUs where any has some, jobs with a line per host, and what their users
// have of each host beside their limits.
std::string status_text(const v1::StatusReply& reply);
// One JSON object on one line:
// {"agents":[{"host":...,"workers":[{"job":...,"ranks":[...],"gone":[...]}],"gpus":[...],
// "users":[...]}]}.
std::string status_json(const v1::StatusReply& reply);

}  // namespace tutti

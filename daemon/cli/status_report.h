// The output of `tutti status`, for people and for programs. Pure.
#pragma once

#include <string>

#include "proto/mesh.pb.h"

namespace tutti {

// Tables: agents, their GPUs where any has some, and jobs with a line per host.
std::string status_text(const v1::StatusReply& reply);
// One JSON object on one line:
// {"agents":[{"host":...,"workers":[{"job":...,"ranks":[...],"gone":[...]}],"gpus":[...]}]}.
std::string status_json(const v1::StatusReply& reply);

}  // namespace tutti

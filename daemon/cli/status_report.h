// The output of `tutti status` for people; status_json() of mesh is that for programs. Pure.
#pragma once

#include <string>

#include "daemon/mesh/mesh.h"

namespace tutti {

// Tables: agents, their GPUs where any has some, jobs with a line per host, and what their users
// have of each host beside their limits.
std::string status_text(const v1::StatusReply& reply);

}  // namespace tutti

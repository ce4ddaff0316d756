// The status of a mesh, for programs.
#pragma once

#include <string>

#include "proto/mesh.pb.h"

namespace tutti {

// One JSON object on one line:
// {"agents":[{"host":...,"workers":[{"job":...,"ranks":[...],"paths":[...],"gone":[...]}],
// "gpus":[...],"users":[...]}]}.
std::string status_json(const v1::StatusReply& reply);

}  // namespace tutti

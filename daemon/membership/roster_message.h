// Converts rosters to and from protobuf, and lists ranks in messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/roster.h"
#include "daemon/base/status_message.h"
#include "proto/mesh.pb.h"

namespace tutti {

v1::Roster to_message(const Roster& roster);
// Returns INVALID_ARGUMENT unless the ranks are 0, 1, 2, ... in order.
Result<Roster> from_message(const v1::Roster& message);

// "rank 3", "ranks 2, 3"; long lists are cut: "ranks 0, 1, ... 15 and 48 more".
std::string list_ranks(const std::vector<uint32_t>& ranks);

}  // namespace tutti

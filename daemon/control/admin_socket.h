// Requests of people and tools over an agent's Unix socket, where the kernel tells the agent who
// asks.
#pragma once

#include <string>

#include "daemon/base/status.h"
#include "proto/mesh.pb.h"

namespace tutti {

// Each step (sending, each part of the answer) takes at most the timeout. `token` may be empty.
// UNAVAILABLE: no agent answers at `path`.
Result<v1::AdminAnswer> ask_socket(const std::string& path, const v1::AdminRequest& request,
                                   const std::string& token, int timeout_ms);

}  // namespace tutti

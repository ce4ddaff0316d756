// The receiving side of sd_notify: how a child process reports that it is ready.
#pragma once

#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace tutti {

// Creates a datagram socket at `path`, for the child's NOTIFY_SOCKET. Replaces an existing file.
Result<Fd> bind_notify_socket(const std::string& path);

// Receives one message, without blocking; returns whether it says READY=1.
bool receive_ready(int socket);

}  // namespace tutti

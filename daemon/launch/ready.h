// The service manager's side of sd_notify: how a child says that it is ready.
#pragma once

#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace tutti {

// A datagram socket at `path`, for the child's NOTIFY_SOCKET; replaces one that is there.
Result<Fd> listen_for_ready(const std::string& path);

// Takes one message, if there is one; whether it says READY=1.
bool says_ready(int socket);

}  // namespace tutti

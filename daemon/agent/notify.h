// Reports this process's state to a service manager (the protocol of sd_notify).
#pragma once

#include <string>

namespace tutti {

// Sends `state` ("READY=1") to the datagram socket at `path`, the value of NOTIFY_SOCKET; a leading
// '@' means an abstract address. Does nothing if the path is empty or nobody listens.
void notify(const std::string& path, const std::string& state);

}  // namespace tutti

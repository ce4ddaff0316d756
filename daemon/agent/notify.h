// Tells a service manager (sd_notify's protocol) how this process is doing.
#pragma once

#include <string>

namespace tutti {

// Sends `state` ("READY=1") to the datagram socket at `path`, which is NOTIFY_SOCKET's value; '@'
// stands for an abstract address. Nothing happens where the path is empty or nobody listens.
void notify(const std::string& path, const std::string& state);

}  // namespace tutti

// What the kernel counts of a TCP connection.
#pragma once

#include "daemon/transport/transport.h"

namespace tutti {

// All 0 if the kernel does not tell (before Linux 4.10), or if it is no TCP socket.
ConnectionCounts counts_of(int socket);

}  // namespace tutti

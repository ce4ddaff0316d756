// Sockets of TCP links: options and connecting.
#pragma once

#include <string>

#include "daemon/base/address.h"
#include "daemon/base/fd.h"

namespace tutti {

// Looks up the name and returns a listening socket with TCP_NODELAY and `congestion`, if the kernel
// allows it; accepted sockets inherit both. Congestion control is set before the handshake because
// one that paces (bbr) leaves its pacing in effect when it is replaced later.
Result<Fd> listen_at(const std::string& address, const std::string& congestion);
// "10.0.0.2:7000", and "10.0.0.2".
std::string name_of_peer(int socket);
std::string address_of_peer(int socket);
// Returns a non-blocking socket with the same options and starts its connect.
Result<Fd> begin_connect(const SocketAddress& to, const std::string& congestion);
// Returns the errno of a failed connect, or 0.
int connect_error(const Fd& socket);

}  // namespace tutti

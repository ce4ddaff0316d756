// Sockets of TCP links: addresses, options and connecting.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace tutti {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// Returns the addresses of "host:port" in the order to try. With `names` it looks up host names,
// which may block; otherwise it accepts numeric hosts only. INVALID_ARGUMENT: another form.
// UNAVAILABLE: no such host.
Result<std::vector<SocketAddress>> resolve(const std::string& address, bool names);

// Returns a listening socket with TCP_NODELAY and `congestion`, if the kernel allows it; accepted
// sockets inherit both. Congestion control is set before the handshake because one that paces
// (bbr) leaves its pacing in effect when it is replaced later.
Result<Fd> listen_at(const SocketAddress& address, const std::string& congestion);
int port_of(const Fd& socket);
// "10.0.0.2:7000", and "10.0.0.2".
std::string name_of_peer(int socket);
std::string address_of_peer(int socket);
// Returns a non-blocking socket with the same options and starts its connect.
Result<Fd> begin_connect(const SocketAddress& to, const std::string& congestion);
// Returns the errno of a failed connect, or 0.
int connect_error(const Fd& socket);

}  // namespace tutti

// The sockets of TCP links: how they are found, made and set.
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

// Where "host:port" leads, in the order to try. `names`: asks for a host's name, which may block;
// else only numbers are understood. INVALID_ARGUMENT: not of that form. UNAVAILABLE: no such host.
Result<std::vector<SocketAddress>> resolve(const std::string& address, bool names);

// No delay, and the congestion control where the kernel allows it: from the start, for one that
// paces (bbr) leaves its pacing behind when it is exchanged later. What is accepted inherits it.
Result<Fd> listen_at(const SocketAddress& address, const std::string& congestion);
int port_of(const Fd& socket);
std::string name_of_peer(const Fd& socket);
// As above; not blocking, its connect under way.
Result<Fd> begin_connect(const SocketAddress& to, const std::string& congestion);
// Why the connect failed; 0: it did not.
int connect_error(const Fd& socket);

// Reads until `into` has `wanted` bytes, and not one more.
enum class Intake { whole, partial, broken };
Intake read_exactly(const Fd& socket, std::string& into, size_t wanted);
// False: not all of it went out at once, which a fresh socket always allows.
bool write_at_once(const Fd& socket, const std::string& bytes);

}  // namespace tutti

// Addresses as people write them, "host:port" or "[::1]:7601", and as sockets take them.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace tutti {

struct Address {
  std::string host;  // A name or a number, without brackets.
  uint16_t port = 0;
  std::string to_string() const;
};

// Returns INVALID_ARGUMENT, naming the expected form, for anything else.
Result<Address> parse_address(const std::string& text);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof(sockaddr_storage);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  // With a number for its host; without a host: neither IPv4 nor IPv6.
  Address numeric() const;
};

SocketAddress copy_of(const sockaddr& address);  // IPv4 or IPv6.
SocketAddress own_address(int socket);

// Returns the addresses of "host:port" in the order to try. With `names` it looks up host names,
// which may block; otherwise it accepts numeric hosts only. INVALID_ARGUMENT: another form.
// UNAVAILABLE: no such host.
Result<std::vector<SocketAddress>> resolve(const std::string& address, bool names = true);
// INVALID_ARGUMENT: the path is empty, or too long for a Unix socket.
Result<SocketAddress> unix_address(const std::string& path);

}  // namespace tutti

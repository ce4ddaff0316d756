// TCP sockets at 127.0.0.1.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace tutti {

inline sockaddr_in loopback(int port) {
  return {AF_INET, htons(static_cast<uint16_t>(port)), {htonl(INADDR_LOOPBACK)}, {}};
}
inline int port_of(const std::string& address) {
  return std::stoi(address.substr(address.rfind(':') + 1));
}

// Not valid where nobody listens.
inline Fd connect_loopback(int port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in to = loopback(port);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0)
    socket.reset();
  return socket;
}

// Listens on a port that was free. Nobody answers unless the test accepts.
struct LoopbackListener {
  LoopbackListener() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own = loopback(0);
    auto* name = reinterpret_cast<sockaddr*>(&own);
    socklen_t size = sizeof(own);
    require(bind(socket.get(), name, size) == 0 && listen(socket.get(), 16) == 0 &&
                getsockname(socket.get(), name, &size) == 0,
            "there is a free port");
    port = ntohs(own.sin_port);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port); }

  Fd socket;
  uint16_t port = 0;
};

}  // namespace tutti

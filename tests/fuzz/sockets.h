// Two ends of a socket, neither of which blocks.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <string_view>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace tutti::fuzz {

struct SocketPair {
  Fd ours;
  Fd theirs;
};

inline SocketPair socket_pair(int type) {
  std::array<int, 2> ends{};
  const int made = socketpair(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data());
  require(made == 0, "a machine has sockets");
  return {Fd(ends[0]), Fd(ends[1])};
}

inline void send_all(const Fd& socket, std::string_view bytes) {
  if (bytes.empty()) return;
  const ssize_t sent = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  require(sent == static_cast<ssize_t>(bytes.size()), "a socket has room");
}

}  // namespace tutti::fuzz

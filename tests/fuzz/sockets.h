// Two ends of a socket, neither of which blocks, and descriptors that travel over them.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"
#include "tests/fuzz/input.h"
#include "tests/support/descriptors.h"

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

// By hand: a sender of ours refuses to send so many.
inline void send_with(const Fd& socket, std::string_view bytes, size_t descriptors) {
  std::vector<int> sent(descriptors, socket.get());
  std::vector<char> control(CMSG_SPACE(descriptors * sizeof(int)));
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptors > 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
    std::memcpy(CMSG_DATA(header), sent.data(), descriptors * sizeof(int));
  }
  const ssize_t count = sendmsg(socket.get(), &message, MSG_NOSIGNAL);
  require(count == static_cast<ssize_t>(bytes.size()), "a socket has room");
}

// Runs one input; no descriptor stays open.
template <class Run>
void without_leaks(const uint8_t* data, size_t size, const Run& run) {
  Input input(data, size);
  const int before = open_descriptors();
  run(input);
  require(open_descriptors() == before, "no descriptor stays open");
}

}  // namespace tutti::fuzz

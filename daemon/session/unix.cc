// Unix sockets: listening, connecting, and messages with descriptors. Every socket made here is
// close-on-exec and non-blocking.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "daemon/base/address.h"
#include "daemon/session/session.h"
#include "proto/board.h"

namespace tutti {
namespace {

constexpr int kBacklog = 512;
constexpr size_t kDescriptorsMax = kWelcomeDescriptors;  // In one packet, either way.

struct ControlBuffer {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> bytes{};
};

Fd make_socket(int type) { return Fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

// Whether a process serves the socket: the file of a dead one refuses the connection.
bool is_live(const SocketAddress& address, int type) {
  const Fd probe = make_socket(type);
  if (connect(probe.get(), address.get(), address.bytes) == 0) return true;
  return errno != ECONNREFUSED && errno != ENOENT;
}

bool is_socket(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode);
}

Status bind_to(const Fd& listener, const std::string& path, const SocketAddress& address,
               int type) {
  if (bind(listener.get(), address.get(), address.bytes) == 0) return {};
  if (errno != EADDRINUSE) return errno_status("cannot bind " + path);
  if (!is_socket(path)) return already_exists(path + " exists and is not a socket; move it away");
  if (is_live(address, type))
    return already_exists(path + " is served by another process; stop it");
  unlink(path.c_str());
  if (bind(listener.get(), address.get(), address.bytes) == 0) return {};
  return errno_status("cannot bind " + path);
}

void attach(msghdr& message, ControlBuffer& control, std::span<const int> descriptors) {
  if (descriptors.empty()) return;
  message.msg_control = control.bytes.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

std::vector<Fd> descriptors_of(msghdr& message) {
  std::vector<Fd> descriptors;
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
      descriptors.emplace_back(fd);
    }
  }
  return descriptors;
}

Result<Fd> listen_unix(const std::string& path, int type, int mode) {
  const Result<SocketAddress> address = unix_address(path);
  if (!address.ok()) return address.status();
  Fd listener = make_socket(type);
  if (!listener.valid()) return errno_status("cannot make a socket");
  if (Status bound = bind_to(listener, path, *address, type); !bound.ok()) return bound;
  // Before listen(), so that no client connects under another mode.
  if (chmod(path.c_str(), static_cast<mode_t>(mode)) != 0)
    return errno_status("cannot set the mode of " + path);
  if (listen(listener.get(), kBacklog) != 0) return errno_status("cannot listen on " + path);
  return listener;
}

Result<Fd> connect_unix(const std::string& path, int type) {
  const Result<SocketAddress> address = unix_address(path);
  if (!address.ok()) return address.status();
  Fd socket = make_socket(type);
  if (!socket.valid()) return errno_status("cannot make a socket");
  if (connect(socket.get(), address->get(), address->bytes) != 0)
    return errno_status("cannot connect to " + path);
  return socket;
}

Status send_packet(int socket, const std::string& bytes, std::span<const int> descriptors) {
  require(descriptors.size() <= kDescriptorsMax, "too many descriptors in one packet");
  iovec data{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  ControlBuffer control;
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  attach(message, control, descriptors);
  const ssize_t sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(bytes.size())) return {};
  if (sent >= 0) return unavailable("the peer's queue is full");
  return would_block() ? unavailable("the peer's queue is full")
                       : unavailable(std::string("the peer is gone: ") + std::strerror(errno));
}

Result<std::optional<Packet>> receive_packet(int socket) {
  const ssize_t size = recv(socket, nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
  if (size < 0 && would_block()) return std::optional<Packet>();
  if (size <= 0) return unavailable("the peer closed");
  Packet packet;
  packet.bytes.resize(static_cast<size_t>(size));
  iovec data{.iov_base = packet.bytes.data(), .iov_len = packet.bytes.size()};
  ControlBuffer control;
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  const ssize_t received = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received != size) return unavailable("the peer closed");
  packet.descriptors = descriptors_of(message);
  return std::optional(std::move(packet));
}

Result<PeerCredentials> peer_credentials(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return errno_status("cannot ask who the peer is");
  return PeerCredentials{peer.uid, peer.gid, static_cast<uint32_t>(peer.pid)};
}

Result<std::vector<uint32_t>> peer_groups(int socket) {
  std::vector<uint32_t> groups(64);
  for (int tries = 0; tries < 2; ++tries) {
    auto size = static_cast<socklen_t>(groups.size() * sizeof(uint32_t));
    const bool read = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) == 0;
    const bool too_small = !read && errno == ERANGE;
    if (!read && !too_small) break;
    groups.resize(size / sizeof(uint32_t));
    if (read) return groups;
  }
  return errno_status("cannot ask for the groups of the peer");
}

}  // namespace tutti

#include "daemon/transport/tcp_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstring>

namespace tutti {
namespace {

constexpr int kBacklog = 1024;
constexpr const char* kNobody = "an unknown address";

void switch_on(const Fd& socket, int level, int option) {
  const int on = 1;
  setsockopt(socket.get(), level, option, &on, sizeof(on));
}

Result<Fd> make_socket(int family, const std::string& congestion) {
  Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno_status("cannot make a socket");
  switch_on(socket, IPPROTO_TCP, TCP_NODELAY);
  switch_on(socket, SOL_SOCKET, SO_KEEPALIVE);
  if (!congestion.empty())
    setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, congestion.data(),
               static_cast<socklen_t>(congestion.size()));
  return socket;
}

// Without a host where it is unknown.
Address find_peer(int socket) {
  SocketAddress from;
  getpeername(socket, from.get(), &from.bytes);
  return from.numeric();
}

}  // namespace

Result<Fd> listen_at(const std::string& address, const std::string& congestion) {
  const Result<std::vector<SocketAddress>> found = resolve(address);
  if (!found.ok()) return found.status();
  const SocketAddress& at = found->front();
  Result<Fd> socket = make_socket(at.storage.ss_family, congestion);
  if (!socket.ok()) return socket;
  switch_on(*socket, SOL_SOCKET, SO_REUSEADDR);
  if (bind(socket->get(), at.get(), at.bytes) != 0 || listen(socket->get(), kBacklog) != 0)
    return Status(errno == EADDRINUSE ? Code::already_exists : Code::unavailable,
                  "cannot listen at " + address + ": " + std::strerror(errno));
  return socket;
}

std::string name_of_peer(int socket) {
  const Address peer = find_peer(socket);
  return peer.host.empty() ? kNobody : peer.to_string();
}

std::string address_of_peer(int socket) {
  const Address peer = find_peer(socket);
  return peer.host.empty() ? kNobody : peer.host;
}

Result<Fd> begin_connect(const SocketAddress& to, const std::string& congestion) {
  Result<Fd> socket = make_socket(to.storage.ss_family, congestion);
  if (!socket.ok()) return socket;
  if (connect(socket->get(), to.get(), to.bytes) != 0 && errno != EINPROGRESS)
    return unavailable(std::strerror(errno));
  return socket;
}

int connect_error(const Fd& socket) {
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

}  // namespace tutti

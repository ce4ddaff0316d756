#include "daemon/transport/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

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

struct PeerName {
  std::string host, port;
};

std::optional<PeerName> find_peer(int socket) {
  SocketAddress from{.bytes = sizeof(sockaddr_storage)};
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&from.storage), &from.bytes) != 0 ||
      getnameinfo(from.get(), from.bytes, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return std::nullopt;
  return PeerName{host.data(), port.data()};
}

}  // namespace

Result<std::vector<SocketAddress>> resolve(const std::string& address, bool names) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0)
    return invalid_argument("\"" + address + "\" is not an address of the form host:port");
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (names ? 0 : AI_NUMERICHOST);
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
  if (error != 0)
    return unavailable("cannot find the address of " + address + ": " + gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    SocketAddress& to = addresses.emplace_back();
    to.bytes = info->ai_addrlen;
    std::memcpy(&to.storage, info->ai_addr, info->ai_addrlen);
  }
  return addresses;
}

Result<Fd> listen_at(const SocketAddress& address, const std::string& congestion) {
  Result<Fd> socket = make_socket(address.storage.ss_family, congestion);
  if (!socket.ok()) return socket;
  switch_on(*socket, SOL_SOCKET, SO_REUSEADDR);
  if (bind(socket->get(), address.get(), address.bytes) != 0 ||
      listen(socket->get(), kBacklog) != 0)
    return Status(errno == EADDRINUSE ? Code::already_exists : Code::unavailable,
                  std::strerror(errno));
  return socket;
}

int port_of(const Fd& socket) {
  SocketAddress name{.bytes = sizeof(sockaddr_storage)};
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name.storage), &name.bytes);
  const bool v6 = name.storage.ss_family == AF_INET6;
  return ntohs(v6 ? reinterpret_cast<const sockaddr_in6*>(&name.storage)->sin6_port
                  : reinterpret_cast<const sockaddr_in*>(&name.storage)->sin_port);
}

std::string name_of_peer(int socket) {
  const std::optional<PeerName> name = find_peer(socket);
  return name ? name->host + ":" + name->port : kNobody;
}

std::string address_of_peer(int socket) {
  const std::optional<PeerName> name = find_peer(socket);
  return name ? name->host : kNobody;
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

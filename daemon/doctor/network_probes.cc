#include "daemon/doctor/network_probes.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "daemon/base/address.h"
#include "daemon/base/fd.h"
#include "daemon/base/text.h"

namespace tutti {
namespace {

constexpr int kPacketBytesMax = 65'535;  // The loopback's MTU is more.
constexpr int kDatagramBytesMax = 65'507;
constexpr int kHeaderBytes4 = 28;  // Of IP and UDP.
constexpr int kHeaderBytes6 = 48;

// UNAVAILABLE, with errno.
Status unreachable(const std::string& address, int error) {
  return unavailable(address + " is not reached: " + std::strerror(error));
}

Status dial_one(const SocketAddress& to, const std::string& address, int timeout_ms) {
  const Fd socket(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return unreachable(address, errno);
  if (connect(socket.get(), to.get(), to.bytes) == 0) return {};
  if (errno != EINPROGRESS) return unreachable(address, errno);
  pollfd ready{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  if (poll(&ready, 1, timeout_ms) != 1) return unreachable(address, ETIMEDOUT);
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? Status{} : unreachable(address, error);
}

bool is_internet(const sockaddr* address) {
  return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

// The interface that has the socket's own address; empty: none.
std::string interface_of(int socket) {
  const std::string own = own_address(socket).numeric().host;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next)
    if (is_internet(one->ifa_addr) && copy_of(*one->ifa_addr).numeric().host == own)
      return one->ifa_name;
  return {};
}

int mtu_of(int socket, const std::string& interface) {
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  return ioctl(socket, SIOCGIFMTU, &request) == 0 ? std::min(request.ifr_mtu, kPacketBytesMax) : 0;
}

int known_path_mtu(int socket, int family) {
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  const bool v4 = family == AF_INET;
  getsockopt(socket, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU : IPV6_MTU, &bytes, &size);
  return bytes;
}

void forbid_fragments(int socket, int family) {
  const bool v4 = family == AF_INET;
  static_assert(IP_PMTUDISC_DO == IPV6_PMTUDISC_DO);
  const int probe = IP_PMTUDISC_DO;
  setsockopt(socket, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER,
             &probe, sizeof(probe));
}

// Sends packets until one is answered ("port unreachable"), or none is any more.
void probe_path(int socket, int family, int timeout_ms, PathView& path) {
  forbid_fragments(socket, family);
  path.path_mtu = known_path_mtu(socket, family);
  for (int tries = 0; tries < 3 && !path.answered; ++tries) {
    const int headers = family == AF_INET ? kHeaderBytes4 : kHeaderBytes6;
    const int bytes = std::clamp(path.path_mtu - headers, 1, kDatagramBytesMax);
    const std::string packet(static_cast<size_t>(bytes), '\0');
    if (send(socket, packet.data(), packet.size(), 0) < 0 && errno == ECONNREFUSED)
      path.answered = true;
    pollfd told{.fd = socket, .events = POLLIN, .revents = 0};
    if (path.answered || poll(&told, 1, timeout_ms) != 1) break;
    char byte = 0;
    path.answered = recv(socket, &byte, 1, MSG_DONTWAIT) >= 0 || errno == ECONNREFUSED;
    path.path_mtu = known_path_mtu(socket, family);
  }
}

}  // namespace

Status dial(const std::string& address, int timeout_ms) {
  const Result<std::vector<SocketAddress>> found = resolve(address);
  if (!found.ok()) return found.status();
  Status status;
  for (const SocketAddress& to : *found)
    if (status = dial_one(to, address, timeout_ms); status.ok()) break;
  return status;
}

Status try_bind(const std::string& address) {
  const Result<std::vector<SocketAddress>> found = resolve(address);
  if (!found.ok()) return found.status();
  const SocketAddress& at = found->front();
  const Fd socket(::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;  // As a server does: ports of connections that ended a moment ago are free.
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(socket.get(), at.get(), at.bytes) == 0 && ::listen(socket.get(), 1) == 0) return {};
  return errno_status("cannot listen at " + address);
}

int count_taken_ports(const PortRange& range) {
  int taken = 0;
  for (uint32_t port = range.first; port <= range.last; ++port)
    if (!try_bind("0.0.0.0:" + std::to_string(port)).ok()) ++taken;
  return taken;
}

PathView look_at_path(const std::string& host, const std::string& address, int timeout_ms) {
  PathView path{.host = host, .address = address};
  const Result<std::vector<SocketAddress>> found = resolve(address);
  if (!found.ok()) return path;
  const SocketAddress& to = found->front();
  const Fd socket(::socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid() || connect(socket.get(), to.get(), to.bytes) != 0) return path;
  path.interface = interface_of(socket.get());
  path.interface_mtu = mtu_of(socket.get(), path.interface);
  probe_path(socket.get(), to.storage.ss_family, timeout_ms, path);
  return path;
}

}  // namespace tutti

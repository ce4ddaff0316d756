#include "daemon/mesh/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <vector>

#include "daemon/base/fd.h"

namespace tutti {
namespace {

// Routed like any Internet address; nothing is ever sent there (RFC 5737).
const Address kOutside{.host = "192.0.2.1", .port = 9};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

std::vector<SocketAddress> resolve(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  if (getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    SocketAddress to{.bytes = info->ai_addrlen};
    std::copy_n(reinterpret_cast<const char*>(info->ai_addr), info->ai_addrlen,
                reinterpret_cast<char*>(&to.storage));
    addresses.push_back(to);
  }
  return addresses;
}

std::string numeric_host(const SocketAddress& address) {
  std::array<char, NI_MAXHOST> host{};
  getnameinfo(address.get(), address.bytes, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return host.data();
}

bool is_wildcard(const std::string& host) {
  const std::vector<SocketAddress> addresses = resolve({.host = host, .port = 0});
  return std::ranges::any_of(addresses, [](const SocketAddress& address) {
    const std::string numeric = numeric_host(address);
    return numeric == "0.0.0.0" || numeric == "::";
  });
}

// Only this machine's own addresses can be bound.
bool is_local(const Address& address) {
  for (const SocketAddress& one : resolve({.host = address.host, .port = 0})) {
    const Fd socket(::socket(one.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket.valid() && bind(socket.get(), one.get(), one.bytes) == 0) return true;
  }
  return false;
}

// Returns "" if there is no route to `toward`. Connecting a datagram socket sends nothing.
std::string local_host_toward(const Address& toward) {
  for (const SocketAddress& one : resolve(toward)) {
    const Fd socket(::socket(one.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    SocketAddress local{.bytes = sizeof(sockaddr_storage)};
    if (socket.valid() && connect(socket.get(), one.get(), one.bytes) == 0 &&
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&local.storage), &local.bytes) == 0)
      return numeric_host(local);
  }
  return {};
}

}  // namespace

std::string Address::to_string() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Address> parse_address(const std::string& text) {
  const Status wrong = invalid_argument("'" + text + "' is no address; expected host:port");
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return wrong;
  Address address{.host = text.substr(0, colon)};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.port);
  if (error != std::errc() || stop != end) return wrong;
  const bool bracketed = address.host.front() == '[' && address.host.back() == ']';
  if (bracketed) address.host = address.host.substr(1, address.host.size() - 2);
  const char* never = bracketed ? "[]" : "[]:";
  if (address.host.empty() || address.host.find_first_of(never) != std::string::npos) return wrong;
  return address;
}

Address reachable(const Address& listen, const std::string& toward) {
  if (!is_wildcard(listen.host)) return listen;
  const Result<Address> target = parse_address(toward);
  const std::string host = local_host_toward(target.ok() ? *target : kOutside);
  return {.host = host.empty() ? "127.0.0.1" : host, .port = listen.port};
}

bool is_self(const Address& target, const Address& listen) {
  if (target.port != listen.port) return false;
  if (is_wildcard(listen.host)) return is_local(target);
  const std::vector<SocketAddress> own = resolve(listen);
  const std::vector<SocketAddress> theirs = resolve(target);
  return std::ranges::any_of(theirs, [&](const SocketAddress& one) {
    return std::ranges::any_of(
        own, [&](const SocketAddress& other) { return numeric_host(one) == numeric_host(other); });
  });
}

}  // namespace tutti

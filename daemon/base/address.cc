#include "daemon/base/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace tutti {

std::string Address::to_string() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Address> parse_address(const std::string& text) {
  const Status wrong =
      invalid_argument("'" + text + "': expected host:port, such as 10.0.0.1:7601");
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

Address SocketAddress::numeric() const {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  getnameinfo(get(), bytes, host.data(), host.size(), port.data(), port.size(),
              NI_NUMERICHOST | NI_NUMERICSERV);
  return {.host = host.data(),
          .port = static_cast<uint16_t>(std::strtoul(port.data(), nullptr, 10))};
}

SocketAddress copy_of(const sockaddr& address) {
  SocketAddress copy;
  copy.bytes = address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(&copy.storage, &address, copy.bytes);
  return copy;
}

SocketAddress own_address(int socket) {
  SocketAddress own;
  getsockname(socket, own.get(), &own.bytes);
  return own;
}

Result<std::vector<SocketAddress>> resolve(const std::string& address, bool names) {
  const Result<Address> parsed = parse_address(address);
  if (!parsed.ok()) return parsed.status();
  const addrinfo hints{.ai_flags = names ? 0 : AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const std::string port = std::to_string(parsed->port);
  const int error = getaddrinfo(parsed->host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return unavailable("'" + address + "': no address: " + gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (; found != nullptr; found = found->ai_next) addresses.push_back(copy_of(*found->ai_addr));
  return addresses;
}

Result<SocketAddress> unix_address(const std::string& path) {
  SocketAddress address;
  auto& place = reinterpret_cast<sockaddr_un&>(address.storage);
  if (path.empty() || path.size() >= sizeof(place.sun_path))
    return invalid_argument("socket path '" + path + "' must have 1 to " +
                            std::to_string(sizeof(place.sun_path) - 1) + " bytes");
  place.sun_family = AF_UNIX;
  std::memcpy(place.sun_path, path.data(), path.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  return address;
}

}  // namespace tutti

#include "daemon/base/address.h"

#include <charconv>

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

}  // namespace tutti

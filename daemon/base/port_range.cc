#include "daemon/base/port_range.h"

#include <charconv>
#include <optional>
#include <string>

namespace tutti {
namespace {

std::optional<uint16_t> parse_port(std::string_view text) {
  uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, port);
  return error == std::errc() && stop == end && port != 0 ? std::optional(port) : std::nullopt;
}

}  // namespace

Result<PortRange> parse_port_range(std::string_view text) {
  if (text.empty()) return PortRange{};
  const size_t dash = text.find('-');
  const auto first = parse_port(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_port(text.substr(dash + 1));
  if (first && last && *first <= *last) return PortRange{*first, *last};
  return invalid_argument("'" + std::string(text) +
                          "': expected ports from 1 to 65535, the lower first, such as 7610-7700");
}

}  // namespace tutti

#include "daemon/http/request.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace tutti {
namespace {

constexpr std::string_view kEndOfLine = "\r\n";
constexpr std::string_view kTokenMarks = "!#$%&'*+-.^_`|~";

std::string_view take_until(std::string_view& text, std::string_view separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + separator.size(), text.size()));
  return taken;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || kTokenMarks.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

bool has_control_character(std::string_view text) {
  return std::ranges::any_of(text,
                             [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; });
}

std::string_view without_blanks(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

Status parse_first_line(std::string_view line, HttpRequest& request) {
  const std::string_view method = take_until(line, " ");
  const std::string_view target = take_until(line, " ");
  const bool is_http = line == "HTTP/1.1" || line == "HTTP/1.0";
  if (!is_http || !is_token(method) || !target.starts_with('/') || has_control_character(target))
    return invalid_argument("the first line is not METHOD /PATH HTTP/1.1");
  request.method = method;
  request.path = target.substr(0, target.find('?'));
  return {};
}

Status parse_header(std::string_view line, HttpRequest& request) {
  const bool has_colon = line.find(':') != line.npos;
  const std::string_view name = take_until(line, ":");
  if (!has_colon || !is_token(name) || has_control_character(line))
    return invalid_argument("a line is not NAME: VALUE");
  const std::string which = lower(name);
  if (which != "authorization" && which != "host") return {};
  std::string& value = which == "host" ? request.host : request.authorization;
  if (!value.empty()) return invalid_argument("there are two headers called " + which);
  value = without_blanks(line);
  return {};
}

}  // namespace

Result<HttpRequest> parse_request(std::string_view head) {
  head = head.substr(0, head.find(kEndOfHead));
  HttpRequest request;
  Status parsed = parse_first_line(take_until(head, kEndOfLine), request);
  while (parsed.ok() && !head.empty()) parsed = parse_header(take_until(head, kEndOfLine), request);
  if (!parsed.ok()) return parsed;
  return request;
}

}  // namespace tutti

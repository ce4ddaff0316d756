#include "daemon/base/foreign_text.h"

#include "daemon/base/status_message.h"

namespace tutti {
namespace {

constexpr size_t kTextBytesMax = 4096;

}  // namespace

Status check_name(const std::string& what, std::string_view name, size_t bytes_max) {
  if (name.size() > bytes_max)
    return invalid_argument(what + " is longer than " + std::to_string(bytes_max) + " bytes");
  const std::string text(name);
  if (well_formed(text) != text) return invalid_argument(what + " is not UTF-8");
  if (printable(text) == text) return {};
  return invalid_argument(what +
                          " holds a control character, or one that turns the direction of text");
}

std::string clean_text(std::string text) {
  if (text.size() > kTextBytesMax) text = text.substr(0, kTextBytesMax) + "...";
  return printable(std::move(text));
}

}  // namespace tutti

// Names of devices: device_name.h.
#include "client/faces/cross_device/device_name.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace tutti::cross_device {
namespace {

bool read_number(std::string_view text, int& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && number >= 0;
}

bool is_word(std::string_view text) {
  const auto fits = [](unsigned char letter) { return std::isalnum(letter) || letter == '_'; };
  return !text.empty() && std::ranges::all_of(text, fits) &&
         !std::isdigit(static_cast<unsigned char>(text[0]));
}

// "GPU:3" or "gpu".
bool read_type(std::string_view text, DeviceName& device) {
  const size_t colon = text.find(':');
  const std::string_view type = text.substr(0, colon);
  if (!is_word(type)) return false;
  device.type = type;
  for (char& letter : device.type)
    letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  if (colon == std::string_view::npos) return device.type == "CPU" || device.type == "GPU";
  return read_number(text.substr(colon + 1), device.index);
}

bool read_part(std::string_view part, DeviceName& device, bool& has_type) {
  const auto after = [&](std::string_view key) { return part.substr(key.size()); };
  int ignored = 0;
  if (part.starts_with("job:")) {
    device.job = after("job:");
    return !device.job.empty();
  }
  if (part.starts_with("replica:")) return read_number(after("replica:"), ignored);
  if (part.starts_with("task:")) return read_number(after("task:"), device.task);
  if (has_type) return false;
  has_type = true;
  return read_type(part.starts_with("device:") ? after("device:") : part, device);
}

bool read_device(std::string_view text, DeviceName& device) {
  if (text.starts_with('/')) text.remove_prefix(1);
  bool has_type = false;
  for (bool more = true; more;) {
    const size_t slash = text.find('/');
    more = slash != std::string_view::npos;
    if (!read_part(text.substr(0, slash), device, has_type)) return false;
    if (more) text.remove_prefix(slash + 1);
  }
  return has_type;
}

}  // namespace

Result<DeviceName> parse_device(std::string_view text) {
  DeviceName device;
  if (read_device(text, device)) return device;
  return invalid_argument("'" + std::string(text) +
                          "' is no device; give one like '/device:CPU:0' or "
                          "'/job:worker/task:1/device:GPU:3'");
}

std::string to_string(const DeviceName& device) {
  std::string text;
  if (!device.job.empty()) text += "/job:" + device.job;
  if (device.task >= 0) text += "/task:" + std::to_string(device.task);
  return text + "/device:" + device.type + ":" + std::to_string(device.index);
}

Result<std::vector<DeviceName>> parse_devices(const std::vector<std::string>& texts) {
  std::vector<DeviceName> devices;
  for (const std::string& text : texts) {
    Result<DeviceName> device = parse_device(text);
    if (!device.ok()) return device.status();
    devices.push_back(*std::move(device));
  }
  return devices;
}

}  // namespace tutti::cross_device

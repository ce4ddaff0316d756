// ReduceOp and CommunicationOptions: options.h.
#include "client/faces/cross_device/options.h"

#include <array>

namespace tutti::cross_device {
namespace {

constexpr std::array<std::string_view, 3> kImplementations = {"AUTO", "RING", "NCCL"};

}  // namespace

Result<Implementation> parse_implementation(std::string_view text) {
  const Result<size_t> found = find_name(kImplementations, "implementation", text);
  if (!found.ok()) return found.status();
  return static_cast<Implementation>(*found);
}

std::string_view name_of(Implementation implementation) {
  return kImplementations[static_cast<size_t>(implementation)];
}

Status CommunicationOptions::check() const {
  if (bytes_per_pack < 0)
    return invalid_argument("bytes_per_pack must be at least 0, but " +
                            std::to_string(bytes_per_pack) + " is specified");
  return check_timeout(timeout_seconds);
}

CommunicationOptions CommunicationOptions::merge(const CommunicationOptions& other) const {
  CommunicationOptions merged = *this;
  if (other.bytes_per_pack != 0) merged.bytes_per_pack = other.bytes_per_pack;
  if (other.timeout_seconds) merged.timeout_seconds = other.timeout_seconds;
  if (other.implementation != Implementation::automatic)
    merged.implementation = other.implementation;
  if (other.reproducible) merged.reproducible = other.reproducible;
  return merged;
}

}  // namespace tutti::cross_device

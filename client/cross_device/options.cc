// ReduceOp and CommunicationOptions: options.h.
#include "client/cross_device/options.h"

#include <cctype>
#include <cmath>

namespace tutti::cross_device {
namespace {

std::string upper(std::string_view text) {
  std::string letters(text);
  for (char& letter : letters)
    letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return letters;
}

}  // namespace

Result<ReduceOp> parse_reduce_op(std::string_view text) {
  const std::string name = upper(text);
  if (name == "SUM") return ReduceOp::sum;
  if (name == "MEAN") return ReduceOp::mean;
  return invalid_argument("'" + std::string(text) + "' is not a valid ReduceOp; give SUM or MEAN");
}

std::string_view name_of(ReduceOp op) { return op == ReduceOp::sum ? "SUM" : "MEAN"; }

Result<Implementation> parse_implementation(std::string_view text) {
  const std::string name = upper(text);
  for (const auto known : {Implementation::automatic, Implementation::ring, Implementation::nccl})
    if (name == name_of(known)) return known;
  return invalid_argument("'" + std::string(text) +
                          "' is not a valid implementation; give AUTO, RING or NCCL");
}

std::string_view name_of(Implementation implementation) {
  switch (implementation) {
    case Implementation::automatic:
      return "AUTO";
    case Implementation::ring:
      return "RING";
    case Implementation::nccl:
      return "NCCL";
  }
  return "";
}

Status CommunicationOptions::check() const {
  if (bytes_per_pack < 0)
    return invalid_argument("bytes_per_pack must be at least 0, but " +
                            std::to_string(bytes_per_pack) + " is specified");
  if (timeout_seconds && !(*timeout_seconds >= 0 && std::isfinite(*timeout_seconds)))
    return invalid_argument("timeout_seconds must be a finite number of at least 0, but " +
                            std::to_string(*timeout_seconds) + " is specified");
  return {};
}

CommunicationOptions CommunicationOptions::merge(const CommunicationOptions& other) const {
  CommunicationOptions merged = *this;
  if (other.bytes_per_pack != 0) merged.bytes_per_pack = other.bytes_per_pack;
  if (other.timeout_seconds) merged.timeout_seconds = other.timeout_seconds;
  if (other.implementation != Implementation::automatic)
    merged.implementation = other.implementation;
  return merged;
}

}  // namespace tutti::cross_device

// How a reduction is asked for: tf.distribute's CommunicationOptions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "client/faces/base/base.h"

namespace tutti::cross_device {

using namespace faces;

enum class Implementation { automatic, ring, nccl };
// "AUTO", "RING" or "NCCL" in letters of either case. INVALID_ARGUMENT for any other text.
Result<Implementation> parse_implementation(std::string_view text);
std::string_view name_of(Implementation implementation);

struct CommunicationOptions {
  // Values of a batch are combined into packs of at least this many bytes; 0: see num_packs.
  int64_t bytes_per_pack = 0;
  // For the whole call, in a group; not given or 0: the timeout of the join.
  std::optional<double> timeout_seconds = std::nullopt;
  // `ring` runs a group's reductions as a ring; the other two mean the class's own order.
  Implementation implementation = Implementation::automatic;
  // Whether a group's reductions are, as in tutti_options; else as the join says.
  std::optional<bool> reproducible = std::nullopt;

  // INVALID_ARGUMENT: a number is negative or not finite.
  Status check() const;
  // These options, with those of `other` that are not the default in their place.
  CommunicationOptions merge(const CommunicationOptions& other) const;
  bool operator==(const CommunicationOptions&) const = default;
};

}  // namespace tutti::cross_device

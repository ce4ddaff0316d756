// What a call on a group is given beside its values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/base/status.h"

namespace tutti::faces {

struct CallOptions {
  int32_t timeout_ms = 0;     // For the whole call; 0: each operation has the timeout of the join.
  std::string strategy = {};  // Of reductions, as in tutti_options; "": the job's.
  // Whether reductions are, as in tutti_options; else as the join says.
  std::optional<bool> reproducible = std::nullopt;
};

// INVALID_ARGUMENT: a timeout is negative or not finite.
Status check_timeout(const std::optional<double>& seconds);
// A timeout as CallOptions has it: nothing and 0 are 0, and what is too long is the longest.
int32_t milliseconds_of(const std::optional<double>& seconds);
// A choice as CallOptions has it, of that of tutti_options: 1, -1, or 0 for none.
std::optional<bool> choice_of(int32_t given);

}  // namespace tutti::faces

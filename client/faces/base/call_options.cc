#include "client/faces/base/call_options.h"

#include <algorithm>
#include <climits>
#include <cmath>

namespace tutti::faces {

Status check_timeout(const std::optional<double>& seconds) {
  if (!seconds || (*seconds >= 0 && std::isfinite(*seconds))) return {};
  return invalid_argument("timeout_seconds must be a finite number of at least 0, but " +
                          std::to_string(*seconds) + " is specified");
}

int32_t milliseconds_of(const std::optional<double>& seconds) {
  return static_cast<int32_t>(std::min(std::ceil(seconds.value_or(0) * 1000), double{INT_MAX}));
}

std::optional<bool> choice_of(int32_t given) {
  return given == 0 ? std::nullopt : std::optional<bool>(given > 0);
}

}  // namespace tutti::faces

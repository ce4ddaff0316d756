// Payload's accessors.
#include <cstring>

#include "daemon/transport/transport.h"

namespace tutti {

size_t Payload::bytes() const {
  size_t sum = 0;
  for (const auto& fragment : fragments) sum += fragment.size();
  return sum;
}

void Payload::copy_to(std::byte* to) const {
  for (const auto& fragment : fragments) {
    if (fragment.empty()) continue;
    std::memcpy(to, fragment.data(), fragment.size());
    to += fragment.size();
  }
}

}  // namespace tutti

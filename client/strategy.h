// Strategy text as people write it, into the numbers that requests carry.
#pragma once

#include <cstdint>
#include <string_view>

#include "client/outcome.h"

namespace tutti::client {

struct PackedStrategies {
  uint32_t local = 0;  // pack_strategy() of proto/segment.h.
  uint32_t global = 0;
};

// "ring", "tree:2", "centralized", "auto", the JSON forms "Ring", {"Tree":2}, "Centralized", one
// for both levels or "LOCAL,GLOBAL". INVALID_ARGUMENT for anything else, naming the forms.
Outcome parse_strategies(std::string_view text, PackedStrategies& strategies);

}  // namespace tutti::client

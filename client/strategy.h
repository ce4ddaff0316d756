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

// The texts that daemon/schedule/strategy_text.cc reads, and no others; a fuzzer compares the two.
// INVALID_ARGUMENT for anything else, naming the forms.
Outcome parse_strategies(std::string_view text, PackedStrategies& strategies);

}  // namespace tutti::client

// What a trainer's request means and whether it may be run: a pure function of the copied bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/board/board.h"
#include "daemon/session/session.h"

namespace tutti {

// Faults end up in Call::invalid, in words that lack who asked. `group`, `number` and `memory`
// stay empty. Where the tensors are not memory that the worker can use as it is (listed, or staged
// without a window: `window_bytes` is 0) the sides are nullptr and `ranks_only` says so.
Call read_request(const Request& request, GroupPlace place, std::byte* base, uint64_t segment_bytes,
                  uint64_t window_bytes = 0);

}  // namespace tutti

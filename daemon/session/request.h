// Checks a trainer's request and turns it into a Call. Pure: it works on a copy of the request, and
// reads shared memory only for the message of a refused call, and for counts, which it copies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/base/call.h"
#include "daemon/board/board.h"

namespace tutti {

// A fault is returned in Call::invalid, without the name of the rank. `group`, `number` and
// `memory` are not set. Where the worker cannot use the tensors as they are (a list, or staged
// while `window_bytes` is 0), both sides are nullptr and `ranks_only` is set.
Call read_request(const Request& request, GroupPlace place, std::byte* base, uint64_t segment_bytes,
                  uint64_t window_bytes = 0);

}  // namespace tutti

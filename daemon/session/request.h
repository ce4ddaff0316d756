// What a trainer's request means and whether it may be run: a pure function of the copied bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/session/session.h"
#include "proto/segment.h"

namespace tutti {

// The session's place in the request's group.
struct GroupPlace {
  uint32_t rank = 0;
  uint32_t size = 1;
};

struct SideBytes {
  uint64_t in = 0;
  uint64_t out = 0;
};

// How many bytes each side of a collective must hold on the rank at `place`. INVALID_ARGUMENT where
// no memory is that large.
Result<SideBytes> side_bytes(Collective collective, Dtype dtype, uint64_t count, uint32_t root,
                             GroupPlace place);

// Whether `bytes` at `offset` lie in the arena of a segment of `segment_bytes`.
bool in_arena(uint64_t offset, uint64_t bytes, uint64_t segment_bytes);

// `request.verb` must be a collective. Faults end up in OpRequest::invalid, in words that lack who
// asked. `memory` stays empty.
OpRequest read_request(const Request& request, GroupPlace place, std::byte* base,
                       uint64_t segment_bytes);

}  // namespace tutti

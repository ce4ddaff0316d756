// How much memory each side of a collective takes on a rank, and which memory may be shared by
// both: what trainers, ranks that fold and the worker must see alike.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/types.h"

namespace tutti {

// A rank's place in the group of a call.
struct GroupPlace {
  uint32_t rank = 0;
  uint32_t size = 1;
};

// Bytes; 0: the rank has no such side.
struct SideBytes {
  uint64_t in = 0;
  uint64_t out = 0;
};

// Of `count` elements, as in Request. Nothing where no memory is that large.
std::optional<SideBytes> side_bytes(Collective collective, Dtype dtype, uint64_t count,
                                    uint32_t root, GroupPlace place);

// Where the smaller side lies within the larger one when the call is in place, in bytes: the input
// of an all_gather in its output, the output of a reduce_scatter in its input; 0 elsewhere.
uint64_t in_place_offset(Collective collective, SideBytes bytes, GroupPlace place);

// Whether sides that begin there are apart, or lie as in place says.
bool may_share(Collective collective, uint64_t in, uint64_t out, SideBytes bytes, GroupPlace place);

}  // namespace tutti

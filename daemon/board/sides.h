// The memory that the input and the output of a collective take on a rank, and how the two may
// overlap. The client, ranks that fold and the worker share these rules.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/base/block_sizes.h"
#include "proto/types.h"

namespace tutti {

// A rank of a group, and the group's size.
struct GroupPlace {
  uint32_t rank = 0;
  uint32_t size = 1;
};

// Bytes; 0: the rank has no such side.
struct SideBytes {
  uint64_t in = 0;
  uint64_t out = 0;
  // Where the smaller side lies within the larger one when the call is in place: a rank's own block
  // among the blocks of the other side; 0 where neither side has blocks.
  uint64_t own_block = 0;
};

// `count`: elements, as in Request. nullopt: the sizes do not fit 64 bits.
std::optional<SideBytes> side_bytes(Collective collective, Dtype dtype, uint64_t count,
                                    uint32_t root, GroupPlace place);
// For a collective with blocks.
std::optional<SideBytes> side_bytes(const BlockSizes& sizes, Dtype dtype, uint32_t rank);

// Whether the sides at these offsets are disjoint, or overlap as SideBytes::own_block says.
bool may_share(Collective collective, uint64_t in, uint64_t out, const SideBytes& bytes);

}  // namespace tutti

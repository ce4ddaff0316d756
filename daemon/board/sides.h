// The memory that the input and the output of a collective take on a rank, and how the two may
// overlap. The client, ranks that fold and the worker share these rules.
#pragma once

#include <algorithm>
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

// How tensors with blocks of one size pass through the window of a rank: in rows. Row r has part r
// of every block, `part` elements of it (the last row fewer), and takes one place of the window, as
// board blocks of other tensors do; there, a side's part of its block i begins `part` * i elements
// behind the side's first one.
struct StagedRows {
  uint64_t count = 0;  // Elements of a block of the tensors.
  uint64_t part = 0;   // 0: in a group that large such tensors do not pass through windows.
  uint64_t in = 0;     // The first element of the rank's input in a row's place, and of its output.
  uint64_t out = 0;

  uint64_t rows() const { return (count + part - 1) / part; }
  uint64_t first(uint64_t row) const { return row * part; }
  uint64_t elements(uint64_t row) const { return std::min(part, count - first(row)); }
};
StagedRows staged_rows(Collective collective, Dtype dtype, uint64_t count, GroupPlace place);

// Whether a call may be in place. An all_to_all may not: its input and output are disjoint.
bool has_in_place(Collective collective);

// Whether the sides at these offsets are disjoint, or overlap as SideBytes::own_block says.
bool may_share(Collective collective, uint64_t in, uint64_t out, const SideBytes& bytes);

}  // namespace tutti

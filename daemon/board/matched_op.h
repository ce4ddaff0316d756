// An operation that all ranks of a host agree on, and the folding of its blocks. Pure: reads and
// writes tensors, and no state of the board.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/base/block_sizes.h"
#include "daemon/base/staged_rows.h"
#include "daemon/board/local_folds.h"
#include "daemon/board/transitions.h"
#include "daemon/kernel/kernel.h"
#include "proto/board.h"
#include "proto/types.h"

namespace tutti::board {

// A rank's segment as mapped here.
struct SegmentView {
  std::byte* base = nullptr;
  uint64_t bytes = 0;
};

// A member's request, copied out of shared memory, and its segment.
struct MemberRequest {
  Request request;
  SegmentView memory;
};

struct MatchedOp {
  // A rank's sides as mapped in this process; nullptr: it has no such side.
  struct Member {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    bool staged = false;
    // For a list: its records, the record that was used last, and the element it begins with.
    const ListedTensor* list = nullptr;
    uint32_t tensors = 0;
    uint32_t tensor = 0;
    uint64_t first = 0;
    SegmentView memory;
  };

  Collective collective = Collective::barrier;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  uint32_t root = 0;
  uint64_t count = 0;  // As in Signature.
  // For collectives with blocks: their sizes and, where they have counts of their own, the parts
  // that are folded, as blocks of the board: those of block b of the tensors end before
  // part_ends[b].
  BlockSizes sizes{{}, 0};
  std::vector<uint32_t> part_ends;
  uint32_t blocks = 0;
  // Where tensors with blocks pass through a window of some rank: their parts, and a row of them is
  // folded as one block of the board. Else its `part` is 0.
  StagedRows rows;
  uint64_t bytes = 0;  // Sum over all sides.
  bool listed = false;
  bool any_staged = false;
  bool anyone_waits = false;
  bool disjoint = true;         // No rank's output overlaps its input.
  bool past_cache = false;      // Fold with streaming stores (see FoldJob); the caller decides.
  std::vector<Member> members;  // By rank.
  // The local strategy's folds of the ranks' contributions, a reduce's root first. Empty: one fold
  // in the order of the ranks.
  Folds folds;

  // Afterwards match() needs no memory for operations with so many counts.
  void reserve_counts(size_t counts) {
    sizes.reserve(counts);
    part_ends.reserve(counts);
  }
};

// Whether ranks can fold the request, in a group of `ranks`. Else the worker decides, and refuses
// what is invalid.
bool can_fold(const Request& request, uint32_t ranks);

// Matches the requests of all ranks, by rank. False: they disagree, or a rank's tensors do not lie
// in its segment as they must.
bool match(std::span<const MemberRequest> asked, MatchedOp& op);

// What follows where all have arrived: see Decision.
Decision decide(const MatchedOp& op);

// Computes one block for every rank. Elements are combined in the order of the local strategy, as
// the engine combines them, for any block and caller; without a strategy, or under
// `centralized`, in the order of the ranks (where the engine, for a reduce, begins with the root).
// One thread at a time, for one `op`. Memory outside of the ranks' segments is never touched,
// whatever a list says meanwhile. Needs no memory.
void run_block(MatchedOp& op, uint32_t block, Kernel kernel);

// A block of a staged rank: [first, first + count) elements of its tensor.
struct StagedBlock {
  uint64_t first = 0;
  uint64_t count = 0;
};
StagedBlock staged_block(uint64_t count, Dtype dtype, uint32_t block);
uint32_t staged_blocks(uint64_t count, Dtype dtype);

}  // namespace tutti::board

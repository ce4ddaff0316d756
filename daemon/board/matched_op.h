// An operation that all ranks of a host agree on, and the work of one block of it. Pure: memory in,
// memory out, and no word to anybody.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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

// What an entry asks for, copied out of shared memory, and where its rank's memory is.
struct MemberRequest {
  Request request;
  SegmentView memory;
};

struct MatchedOp {
  // A rank's sides as this process sees them; nullptr: it has no such side.
  struct Member {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    bool staged = false;
    // Of a list that is not staged: its records, and where a search among them stands.
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
  uint64_t count = 0;  // As in Request.
  uint32_t blocks = 0;
  uint64_t bytes = 0;  // Of all sides together.
  bool listed = false;
  bool any_staged = false;
  bool anyone_waits = false;
  bool apart = true;            // No output lies where an input does.
  bool past_cache = false;      // See FoldJob; the caller decides.
  std::vector<Member> members;  // By rank.
  // Of the local strategy, over the ranks, a reduce's root first; empty: in the order of the ranks.
  Folds folds;
};

// Whether ranks can fold what is asked for: everything that the worker need not refuse, in the
// order of additions that it would choose. `rank` of `ranks` asks.
bool can_fold(const Request& request, uint32_t ranks);

// What the ranks ask for together, by rank. False: they disagree, or one of them does not hold in
// its segment what it must.
bool match(std::span<const MemberRequest> asked, MatchedOp& op);

// What follows where all have arrived: see Decision.
Decision decide(const MatchedOp& op);

// Computes one block for every rank. Elements are combined in the order of the local strategy, as
// the engine combines them, whatever the block and whoever calls; without a strategy, or under
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

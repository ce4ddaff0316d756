// An operation that all ranks of a host agree on, and the work of one block of it. Pure: memory in,
// memory out, and no word to anybody.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "daemon/kernel/kernel.h"
#include "proto/board.h"
#include "proto/types.h"

namespace tutti::client {

struct Joint {
  // A rank's sides as this process sees them; nullptr: it has no such side.
  struct Part {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    bool staged = false;
    uint32_t slot = 0;  // Its completion.
  };

  Collective collective = Collective::barrier;
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  uint32_t root = 0;
  uint64_t count = 0;  // As in Request.
  uint32_t ranks = 0;
  uint32_t blocks = 0;
  uint64_t bytes = 0;  // Of all sides together.
  bool any_staged = false;
  bool anyone_waits = false;
  bool apart = true;        // No output lies where an input does.
  bool past_cache = false;  // See FoldJob; the caller decides.
  std::array<Part, kBoardRanks> parts;
};

// Whether the board can do what is asked for: everything that the worker need not refuse, in the
// order of additions that it would choose. `rank` of `ranks` asks.
bool suits_board(const Request& request, uint32_t ranks);

// How many blocks the operation has.
uint32_t block_count(const Joint& joint);

// What the entries ask for together. `base` and `bytes`: each rank's segment as mapped here. False:
// they disagree, or one of them does not hold in its segment what it must.
struct Mapped {
  std::byte* base = nullptr;
  uint64_t bytes = 0;
};
bool read_joint(const BoardEntry* entries, const Mapped* segments, uint32_t ranks, Joint& joint);

// Computes one block for every rank. Elements are combined in the order of the ranks, whatever the
// block and whoever calls: the bits are those of the engine's fold.
void run_block(const Joint& joint, uint32_t block, Kernel kernel);

// Where a block of a staged rank lies: [first, first + count) elements of its tensor, `offset`
// bytes into its staging memory.
struct StagedBlock {
  uint64_t first = 0;
  uint64_t count = 0;
  uint64_t offset = 0;
};
StagedBlock staged_block(uint64_t count, Dtype dtype, uint32_t block);
uint32_t staged_blocks(uint64_t count, Dtype dtype);

}  // namespace tutti::client

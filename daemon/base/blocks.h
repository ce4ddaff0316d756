// The blocks of collectives whose tensors consist of blocks, one for each rank: which there are,
// whose they are, and where they lie.
//
// Block r is rank r's, but in an all_to_all, where block s * ranks + r goes from rank s to rank r.
#pragma once

#include <cstdint>

#include "proto/types.h"

namespace tutti {

// Whether a call may be in place. An all_to_all may not: its input and output are disjoint.
constexpr bool has_in_place(Collective collective) {
  return !(has_input_blocks(collective) && has_output_blocks(collective));
}

// A range of ranks.
struct RankRange {
  uint32_t begin = 0;
  uint32_t end = 0;
  constexpr bool contains(uint32_t rank) const { return begin <= rank && rank < end; }
};

// A collective with blocks (has_blocks()), in a group of `ranks`. `root`: of a gather or scatter.
struct Blocks {
  Collective collective = Collective::all_gather;
  uint32_t root = 0;
  uint32_t ranks = 1;

  constexpr uint32_t count() const {
    return collective == Collective::all_to_all ? ranks * ranks : ranks;
  }
  // The ranks whose inputs have the block.
  constexpr RankRange senders(uint32_t block) const {
    if (collective == Collective::reduce_scatter) return {0, ranks};
    return only(collective == Collective::scatter ? root : sender(block));
  }
  // The ranks whose outputs have the block.
  constexpr RankRange receivers(uint32_t block) const {
    if (collective == Collective::all_gather) return {0, ranks};
    return only(collective == Collective::gather ? root : receiver(block));
  }
  // The block's index among the blocks of such an input, and of such an output.
  constexpr uint32_t index_in_input(uint32_t block) const {
    return has_input_blocks(collective) ? receiver(block) : 0;
  }
  constexpr uint32_t index_in_output(uint32_t block) const {
    return has_output_blocks(collective) ? sender(block) : 0;
  }

 private:
  static constexpr RankRange only(uint32_t rank) { return {rank, rank + 1}; }
  constexpr uint32_t sender(uint32_t block) const {
    return collective == Collective::all_to_all ? block / ranks : block;
  }
  constexpr uint32_t receiver(uint32_t block) const {
    return collective == Collective::all_to_all ? block % ranks : block;
  }
};

}  // namespace tutti

// An ordinary buffer's way through a small, warm window of the segment: block by block in, folded,
// and out, so that a large tensor passes through the cache once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client/board.h"

namespace tutti::client {

// A rank's sides of a staged operation; nullptr: it has no such side. `window`: kStageBlocks blocks
// of the segment.
struct Staged {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::byte* window = nullptr;
  uint64_t count = 0;
  Dtype dtype = Dtype::f32;
};

class Stage {
 public:
  Stage(Board& board, uint64_t number, const Staged& staged)
      : board_(board),
        number_(number),
        staged_(staged),
        blocks_(staged_blocks(staged.count, staged.dtype)) {}

  // Copies a block in, folds some, copies some out, as far as they are there; false: it must wait
  // for the other ranks.
  bool step();
  // Copies out what is left of an operation that is done.
  void drain();

 private:
  bool feed();
  void copy_in(uint32_t block);
  void take();

  Board& board_;
  const uint64_t number_;
  const Staged staged_;
  const uint32_t blocks_;
  uint32_t fed_ = 0;
  uint32_t taken_ = 0;
};

}  // namespace tutti::client

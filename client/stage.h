// Ordinary memory's way through a small, warm window of the segment: block by block in, folded, and
// out, so that a large tensor passes through the cache once. A list of tensors passes as the one
// tensor that they are end to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/calls.h"

namespace tutti::client {

// A tensor's sides; nullptr: it has no such side.
struct TensorSides {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  size_t bytes = 0;
};

struct Staged {
  std::span<const TensorSides> tensors;
  std::byte* window = nullptr;  // Of the segment.
  uint32_t window_blocks = 0;
  uint64_t count = 0;  // Elements of all tensors.
  Dtype dtype = Dtype::f32;
};

class Stage {
 public:
  Stage(Calls& calls, Ticket& ticket, const Staged& staged)
      : calls_(calls),
        ticket_(ticket),
        staged_(staged),
        blocks_(board::staged_blocks(staged.count, staged.dtype)) {}

  // Takes the call to its end.
  Status run(Backoff backoff);

 private:
  // Where a walk along the tensors stands.
  struct Cursor {
    size_t tensor = 0;
    size_t offset = 0;
  };

  bool step();
  bool feed();
  void take();
  template <class Copy>
  void walk(Cursor& cursor, uint32_t block, const Copy& copy);

  Calls& calls_;
  Ticket& ticket_;
  const Staged staged_;
  const uint32_t blocks_;
  uint32_t fed_ = 0;
  uint32_t taken_ = 0;
  Cursor in_;
  Cursor out_;
};

}  // namespace tutti::client

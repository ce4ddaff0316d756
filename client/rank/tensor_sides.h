// One tensor of a call in memory of this rank.
#pragma once

#include <cstddef>

namespace tutti::client {

// The two sides of one tensor in ordinary memory; nullptr: this rank has no such side.
struct TensorSides {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  size_t bytes = 0;
};

}  // namespace tutti::client

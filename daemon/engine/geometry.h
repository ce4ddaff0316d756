// Where the elements of a chunk's slice lie: pure arithmetic, the same on all hosts.
#pragma once

#include <cstdint>

#include "daemon/engine/engine.h"

namespace tutti {

struct Range {
  uint64_t first = 0;  // Element, from the start of the chunked tensor.
  uint64_t count = 0;
};

class Geometry {
 public:
  explicit Geometry(const Operation& operation);

  uint64_t slices() const { return slices_; }
  Range chunk(int chunk) const;
  Range slice(int chunk, uint64_t slice) const;

  // Where a rank's own contribution to the range lies, and where its result belongs; nullptr where
  // it has none.
  const std::byte* input(const RankBuffers& buffers, int chunk, const Range& range) const;
  std::byte* home(const RankBuffers& buffers, int chunk, const Range& range) const;

 private:
  bool by_rank() const;  // Chunk r is rank r's block.

  const Plan& plan_;
  uint64_t count_;
  uint64_t element_bytes_;
  int chunks_;
  uint64_t slice_elements_;
  uint64_t slices_;
};

}  // namespace tutti

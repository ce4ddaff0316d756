// The memory of one segment: a sealed, sparse memfd and its mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"
#include "proto/segment.h"

namespace tutti {

// Unmapped when the last owner lets go. Everything behind it may change at any moment.
class Mapping {
 public:
  Mapping(std::byte* base, uint64_t bytes) : base_(base), bytes_(bytes) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }

 private:
  std::byte* base_;
  uint64_t bytes_;
};

struct Segment {
  Fd memory;
  std::shared_ptr<const Mapping> mapping;
};

// `bytes`: of the whole file, rounded up to a page. The header is filled in.
Result<Segment> make_segment(uint64_t bytes);

}  // namespace tutti

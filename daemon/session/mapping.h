// Shared memory that the worker makes: a sealed, sparse memfd and its mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"
#include "proto/segment.h"

namespace tutti {

// Owns a mapping. Trainers may change its bytes at any moment.
class Mapping {
 public:
  Mapping(std::byte* base, uint64_t bytes) : base_(base), bytes_(bytes) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  SegmentHeader& segment_header() const { return *reinterpret_cast<SegmentHeader*>(base_); }

 private:
  std::byte* base_;
  uint64_t bytes_;
};

struct SealedMemory {
  Fd memory;
  std::shared_ptr<const Mapping> mapping;
};

// `name`: of the memfd. Errors say "cannot size <what><detail>".
Result<SealedMemory> make_sealed_memory(const char* name, const std::string& what, uint64_t bytes,
                                        const std::string& detail = "");

// INVALID_ARGUMENT: no such size.
Status check_segment_bytes(uint64_t bytes);

// A trainer's segment with its header filled in, of `bytes` in all, rounded up to a page.
// INVALID_ARGUMENT: no such size.
Result<SealedMemory> make_segment(uint64_t bytes);

}  // namespace tutti

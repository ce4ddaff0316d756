// A mapping of one rank's segment (proto/segment.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client/rank/error.h"
#include "daemon/base/fd.h"
#include "proto/segment.h"

namespace tutti::client {

class MappedSegment {
 public:
  MappedSegment() = default;
  MappedSegment(const MappedSegment&) = delete;
  MappedSegment& operator=(const MappedSegment&) = delete;
  ~MappedSegment();

  // Maps the memfd, once. FAILED_PRECONDITION: it is of another version.
  Status map(Fd memory);

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  // Makes the pages present, because the first touch of a page costs ten times as much as later
  // ones.
  void populate(uint64_t offset, uint64_t bytes) const;
  // It stays mapped until the process ends. Any thread.
  void keep() { is_kept_ = true; }
  // Whether [memory, memory + bytes) is in the arena.
  bool contains(const void* memory, uint64_t bytes) const;
  uint64_t offset_of(const void* memory) const;
  // Returns pages to the system; they read as 0 until written.
  void discard(uint64_t offset, uint64_t bytes) const;

 private:
  Fd memory_;
  std::byte* base_ = nullptr;
  uint64_t bytes_ = 0;
  std::atomic<bool> is_kept_ = false;
};

}  // namespace tutti::client

// The trainer's mapping of the segment of proto/segment.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "client/error.h"
#include "daemon/base/fd.h"
#include "proto/segment.h"

namespace tutti::client {

class Segment {
 public:
  Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  Status map(Fd memory);

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  // Pages are there before they are used: the first touch of one costs ten times what a later one
  // does.
  void populate(uint64_t offset, uint64_t bytes) const;
  // Whether all of [memory, memory + bytes) lies in the arena.
  bool contains(const void* memory, uint64_t bytes) const;
  uint64_t offset_of(const void* memory) const;
  // Gives pages back to the system; they read as 0 until written.
  void discard(uint64_t offset, uint64_t bytes) const;

 private:
  Fd memory_;
  std::byte* base_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace tutti::client

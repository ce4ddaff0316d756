// Whether ranges of memory that are read and written get in each other's way. This one rule holds
// for the tensors of a list and for operations under way, whatever memory they are in.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/types.h"

namespace tutti::client {

// What one tensor takes of memory. Without bytes it is nowhere.
struct MemoryRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  uint32_t tensor = 0;  // Which one it is, for messages.
  bool is_written = false;

  bool operator==(const MemoryRange&) const = default;
};

// Two ranges with a byte in common that at least one of them writes.
struct Overlap {
  MemoryRange first;
  MemoryRange second;
};

// Sorts by beginning, as the functions below need it. Costs one pass where they ascend already.
void sort_ranges(std::vector<MemoryRange>& ranges);

// nullopt: there are none. For several overlaps, one that begins first.
std::optional<Overlap> find_overlap(std::span<const MemoryRange> ranges);
// For a range of one set with one of another: `first` is of `a`.
std::optional<Overlap> find_overlap(std::span<const MemoryRange> a, std::span<const MemoryRange> b);

// What is to be said where the two sides of a tensor overlap, and the call is not in place.
std::string sides_overlap(Collective collective);

}  // namespace tutti::client

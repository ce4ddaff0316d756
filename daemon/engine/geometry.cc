#include "daemon/engine/geometry.h"

#include <algorithm>

namespace tutti {

Geometry::Geometry(const Plan& plan, Dtype dtype, uint64_t count, uint64_t slice_bytes)
    : blocks_{plan.collective, static_cast<uint32_t>(plan.root),
              static_cast<uint32_t>(world_size(plan))},
      count_(count),
      element_bytes_(size_of(dtype)),
      chunks_(chunk_count(plan)) {
  const auto chunks = static_cast<uint64_t>(chunks_);
  const uint64_t whole = whole_slice_bytes(slice_bytes, chunks) / element_bytes_;
  slice_elements_ = has_blocks() ? std::max<uint64_t>(1, whole / chunks) : whole;
  slices_ = std::max<uint64_t>(1, (count_ + slice_elements_ - 1) / slice_elements_);
}

Range Geometry::slice(int chunk, uint64_t slice) const {
  const auto index = static_cast<uint64_t>(chunk);
  const uint64_t first = std::min(count_, slice * slice_elements_);
  const uint64_t whole = std::min(slice_elements_, count_ - first);
  if (has_blocks()) return {index * count_ + first, whole};
  const uint64_t even = whole / static_cast<uint64_t>(chunks_);
  const uint64_t longer = whole % static_cast<uint64_t>(chunks_);
  return {first + index * even + std::min(index, longer), even + (index < longer ? 1 : 0)};
}

uint64_t Geometry::end_of(uint64_t slice) const {
  return std::min(count_, (slice + 1) * slice_elements_) * element_bytes_;
}

uint64_t Geometry::offset(int chunk, uint32_t index, const Range& range) const {
  const uint64_t within = range.first - static_cast<uint64_t>(chunk) * count_;
  return (index * count_ + within) * element_bytes_;
}

uint64_t Geometry::input_offset(int chunk, const Range& range) const {
  if (!has_blocks()) return range.first * element_bytes_;
  return offset(chunk, blocks_.index_in_input(static_cast<uint32_t>(chunk)), range);
}

uint64_t Geometry::output_offset(int chunk, const Range& range) const {
  if (!has_blocks()) return range.first * element_bytes_;
  return offset(chunk, blocks_.index_in_output(static_cast<uint32_t>(chunk)), range);
}

}  // namespace tutti

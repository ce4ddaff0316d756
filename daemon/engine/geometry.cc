#include "daemon/engine/geometry.h"

#include <algorithm>

#include "daemon/base/staged_rows.h"

namespace tutti {

namespace {

BlockSizes sizes_of(const Plan& plan, uint64_t count, std::span<const uint64_t> counts) {
  const Blocks blocks{plan.collective, static_cast<uint32_t>(plan.root),
                      static_cast<uint32_t>(world_size(plan))};
  return counts.empty() ? BlockSizes(blocks, count) : BlockSizes(blocks, counts);
}

}  // namespace

Geometry::Geometry(const Plan& plan, Dtype dtype, uint64_t count, uint64_t slice_bytes,
                   std::span<const uint64_t> counts)
    : sizes_(sizes_of(plan, count, counts)),
      element_bytes_(size_of(dtype)),
      chunks_(chunk_count(plan)) {
  const auto chunks = static_cast<uint64_t>(chunks_);
  slice_elements_ = has_blocks() ? block_slice_elements(sizes_.blocks(), dtype, slice_bytes)
                                 : whole_slice_bytes(slice_bytes, chunks) / element_bytes_;
  slices_ = std::max<uint64_t>(1, (sizes_.largest() + slice_elements_ - 1) / slice_elements_);
}

Range Geometry::slice(int chunk, uint64_t slice) const {
  const auto index = static_cast<uint64_t>(chunk);
  const uint64_t count =
      has_blocks() ? sizes_.count(static_cast<uint32_t>(chunk)) : sizes_.largest();
  const uint64_t first = std::min(count, slice * slice_elements_);
  const uint64_t whole = std::min(slice_elements_, count - first);
  if (has_blocks()) return {first, whole};
  const uint64_t even = whole / static_cast<uint64_t>(chunks_);
  const uint64_t longer = whole % static_cast<uint64_t>(chunks_);
  return {first + index * even + std::min(index, longer), even + (index < longer ? 1 : 0)};
}

uint64_t Geometry::end_of(uint64_t slice) const {
  return std::min(sizes_.largest(), (slice + 1) * slice_elements_) * element_bytes_;
}

uint64_t Geometry::input_offset(int chunk, const Range& range) const {
  const uint64_t before = has_blocks() ? sizes_.first_in_input(static_cast<uint32_t>(chunk)) : 0;
  return (before + range.first) * element_bytes_;
}

uint64_t Geometry::output_offset(int chunk, const Range& range) const {
  const uint64_t before = has_blocks() ? sizes_.first_in_output(static_cast<uint32_t>(chunk)) : 0;
  return (before + range.first) * element_bytes_;
}

}  // namespace tutti

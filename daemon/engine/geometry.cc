#include "daemon/engine/geometry.h"

#include <algorithm>

namespace tutti {

Geometry::Geometry(const Operation& operation)
    : plan_(operation.recipe->plan),
      count_(operation.count),
      element_bytes_(size_of(operation.dtype)),
      chunks_(chunk_count(plan_)) {
  const uint64_t bytes = std::max(operation.slice_bytes / chunks_, kLeastSliceBytes);
  slice_elements_ = bytes / element_bytes_;
  slices_ = (chunk(0).count + slice_elements_ - 1) / slice_elements_;  // Chunk 0 is the longest.
}

bool Geometry::by_rank() const {
  return plan_.collective == Collective::all_gather ||
         plan_.collective == Collective::reduce_scatter;
}

Range Geometry::chunk(int chunk) const {
  const auto index = static_cast<uint64_t>(chunk);
  if (by_rank()) return {index * count_, count_};
  const uint64_t even = count_ / chunks_;
  const uint64_t longer = count_ % chunks_;
  return {index * even + std::min(index, longer), even + (index < longer ? 1 : 0)};
}

Range Geometry::slice(int chunk_index, uint64_t slice) const {
  const Range whole = chunk(chunk_index);
  const uint64_t skip = std::min(whole.count, slice * slice_elements_);
  return {whole.first + skip, std::min(slice_elements_, whole.count - skip)};
}

const std::byte* Geometry::input(const RankBuffers& buffers, int chunk_index,
                                 const Range& range) const {
  if (buffers.in == nullptr || !contributes(plan_, buffers.rank, chunk_index)) return nullptr;
  const bool own_block = plan_.collective == Collective::all_gather;
  const uint64_t base = own_block ? chunk(chunk_index).first : 0;
  return buffers.in + (range.first - base) * element_bytes_;
}

std::byte* Geometry::home(const RankBuffers& buffers, int chunk_index, const Range& range) const {
  if (buffers.out == nullptr || !wants(plan_, buffers.rank, chunk_index)) return nullptr;
  const bool own_block = plan_.collective == Collective::reduce_scatter;
  const uint64_t base = own_block ? chunk(chunk_index).first : 0;
  return buffers.out + (range.first - base) * element_bytes_;
}

}  // namespace tutti

// Packs of a batch: packing.h.
#include "client/faces/base/packing.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace tutti::faces {

std::vector<size_t> pack_sizes(size_t total, size_t num_packs) {
  std::vector<size_t> sizes(num_packs, total / num_packs);
  sizes.back() += total % num_packs;
  return sizes;
}

std::vector<Pack> pack_by_count(const std::vector<size_t>& counts, size_t num_packs) {
  const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
  if (total == 0) return {};
  std::vector<Pack> packs;
  size_t tensor = 0;
  size_t offset = 0;
  // With more packs than elements, all but the last have none.
  for (size_t room : pack_sizes(total, num_packs > total ? 1 : num_packs)) {
    Pack& pack = packs.emplace_back();
    while (room != 0) {
      const size_t count = std::min(room, counts[tensor] - offset);
      if (count != 0) pack.push_back({tensor, offset, count});
      room -= count;
      offset += count;
      if (offset == counts[tensor]) {
        ++tensor;
        offset = 0;
      }
    }
  }
  return packs;
}

std::vector<Pack> pack_by_bytes(const std::vector<size_t>& counts, size_t element_bytes,
                                size_t bytes_per_pack) {
  std::vector<Pack> packs;
  size_t bytes = 0;
  for (size_t tensor = 0; tensor < counts.size(); ++tensor) {
    if (packs.empty() || (bytes_per_pack != 0 && bytes > bytes_per_pack)) {
      packs.emplace_back();
      bytes = 0;
    }
    packs.back().push_back({tensor, 0, counts[tensor]});
    bytes += counts[tensor] * element_bytes;
  }
  return packs;
}

std::vector<Pack> pack_by_dtype(const std::vector<Tensor>& tensors) {
  std::map<Dtype, Pack> by_dtype;
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor)
    by_dtype[tensors[tensor].dtype()].push_back({tensor, 0, tensors[tensor].count()});
  std::vector<Pack> packs;
  for (auto& [_, pack] : by_dtype) packs.push_back(std::move(pack));
  return packs;
}

std::vector<Pack> pack_each(const std::vector<size_t>& counts) {
  std::vector<Pack> packs;
  for (size_t tensor = 0; tensor < counts.size(); ++tensor)
    packs.push_back({{tensor, 0, counts[tensor]}});
  return packs;
}

}  // namespace tutti::faces

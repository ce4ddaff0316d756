// How the tensors of a batch are combined into packs, each of which is reduced as one operation.
// Packs are lists of ranges: nothing is copied to make one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/faces/base/tensor.h"

namespace tutti::faces {

// A range of elements of one tensor of the batch.
struct Piece {
  size_t tensor = 0;
  size_t offset = 0;
  size_t count = 0;
  bool operator==(const Piece&) const = default;
};
using Pack = std::vector<Piece>;

// The sizes of `num_packs` >= 1 packs of `total` elements: all of total / num_packs, the last with
// the remainder. 10 in 3: 3, 3, 4; 2 in 8: seven of 0, then 2.
std::vector<size_t> pack_sizes(size_t total, size_t num_packs);

// The tensors one after the other, cut into `num_packs` packs by pack_sizes(). Tensors without
// elements are in no pack, and packs without elements are left out.
std::vector<Pack> pack_by_count(const std::vector<size_t>& counts, size_t num_packs);

// Whole tensors in order; a new pack begins once the last one is larger than `bytes_per_pack`, so
// packs overshoot. 0: a single pack.
std::vector<Pack> pack_by_bytes(const std::vector<size_t>& counts, size_t element_bytes,
                                size_t bytes_per_pack);

// A pack of whole tensors for each dtype.
std::vector<Pack> pack_by_dtype(const std::vector<Tensor>& tensors);

// A pack for each tensor.
std::vector<Pack> pack_each(const std::vector<size_t>& counts);

}  // namespace tutti::faces

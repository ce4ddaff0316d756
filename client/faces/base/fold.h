// Arithmetic on the tensors of one process, by the daemon's kernels. 16-bit floats are summed and
// divided in f32, and rounded once; integers wrap around.
#pragma once

#include <span>
#include <vector>

#include "client/faces/base/tensor.h"
#include "daemon/kernel/kernel.h"

namespace tutti::faces {

// Indices of tensors by group.
using Grouping = std::vector<std::vector<size_t>>;

// One group of all, so that they are summed from left to right.
Grouping flat(size_t count);

// Writes (sum of groups) / divisor to every target: within a group from left to right, then the
// groups from left to right. All tensors have as many elements; all sources are of one dtype, all
// targets too, and where these differ they are a 16-bit float and f32. `divisor` is 1 for integers.
void fold(const std::vector<Tensor>& sources, const Grouping& grouping, uint32_t divisor,
          const std::vector<Tensor>& targets);

// (sources[0] + sources[1] + ...) / divisor, as a new tensor of this dtype: see fold().
Tensor sum_of(const std::vector<Tensor>& sources, Dtype dtype, uint32_t divisor = 1);

// fold() of `count` elements from left to right.
void fold_elements(std::span<const Operand> sources, std::span<const Target> targets, size_t count,
                   uint32_t divisor);

// The values one behind the other along `axis`; in all other axes they are equal, and there is at
// least one.
Tensor concatenate(const std::vector<Tensor>& values, size_t axis);

}  // namespace tutti::faces

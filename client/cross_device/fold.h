// Sums of several tensors of one process, in a stated order of association.
#pragma once

#include <cstdint>
#include <vector>

#include "client/cross_device/device_name.h"
#include "client/cross_device/tensor.h"

namespace tutti::cross_device {

// Indices of tensors by group.
using Grouping = std::vector<std::vector<size_t>>;

// One group of all, so that they are summed from left to right.
Grouping flat(size_t count);

// The groups of hierarchical copy: the devices of one host (task) form a group, in the order in
// which the hosts first occur. If all are on one host: the first ceil(n / 2) and the others, so
// that no device is left out where n is odd.
Grouping hierarchical(const std::vector<DeviceName>& devices);

// Writes (sum of groups) / divisor to every target: within a group from left to right, then the
// groups from left to right. 16-bit floats are summed and divided in f32, and rounded once.
// Integers wrap. All tensors have as many elements; all sources are of one dtype, all targets too,
// and where these differ they are a 16-bit float and f32. `divisor` is 1 for integers.
void fold(const std::vector<Tensor>& sources, const Grouping& grouping, uint32_t divisor,
          const std::vector<Tensor>& targets);

}  // namespace tutti::cross_device

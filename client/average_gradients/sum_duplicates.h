// Slices whose indices are distinct.
#pragma once

#include "client/cross_device/tensor.h"

namespace tutti::average_gradients {

// The sum of the rows of each index, divided, in ascending order of the indices. Rows of one index
// are summed in their order; 16-bit floats in f32, rounded once.
cross_device::IndexedSlices sum_duplicates(const cross_device::IndexedSlices& slices,
                                           uint32_t divisor);

}  // namespace tutti::average_gradients

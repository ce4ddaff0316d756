// Arithmetic on the tensors of one process, by the daemon's kernels. Pure. 16-bit floats are summed
// in f32 and rounded once. The order of a sum is that of its inputs.
#pragma once

#include <span>

#include "client/distribute/tensor.h"

namespace tutti::distribute {

// (sources[0] + sources[1] + ...) / divisor, as `dtype`: the sources' own, or the one in which they
// are summed. The sources have one shape and one dtype, and there is at least one. Integers wrap
// around, and are not divided.
Tensor sum_of(std::span<const TensorView> sources, Dtype dtype, uint32_t divisor = 1);

// a + b and a - b, of one dtype, which is not bool, and one shape.
Tensor add(const TensorView& a, const TensorView& b);
Tensor subtract(const TensorView& a, const TensorView& b);

// source / divisor as `dtype`, which `source` is summed in.
Tensor divide(const TensorView& source, uint32_t divisor, Dtype dtype);

// The sum over `axes` (ascending, each once), which the result lacks, in the dtype in which the
// source is summed. Zeros where an axis has no elements.
Tensor sum_over(const TensorView& source, const std::vector<size_t>& axes);

// The values one behind the other along `axis`; in all other axes they are equal, and there is at
// least one.
Tensor concatenate(std::span<const TensorView> values, size_t axis);

// The part of `value` from `begin` on, of the sides `sides`. It lies within `value`.
Tensor slice_of(const TensorView& value, const Shape& begin, const Shape& sides);

}  // namespace tutti::distribute

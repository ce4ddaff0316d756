// Arithmetic on the tensors of one process that only strategies need; sums are in fold.h of the
// base. Pure.
#pragma once

#include <vector>

#include "client/faces/base/base.h"

namespace tutti::distribute {

using namespace faces;
using faces::to_string;  // Besides those of this namespace.

// The axis counted from 0; a negative one counts from the end. INVALID_ARGUMENT: out of range.
Result<size_t> axis_from_start(int64_t axis, const Shape& shape);

// a - b, of one dtype, which is not bool, and one shape.
Tensor subtract(const Tensor& a, const Tensor& b);

// The sum over `axes` (ascending, each once), which the result lacks, in the dtype in which the
// source is summed. Zeros where an axis has no elements.
Tensor sum_over(const Tensor& source, const std::vector<size_t>& axes);

// The part of `value` from `begin` on, of the sides `sides`. It lies within `value`.
Tensor slice_of(const Tensor& value, const Shape& begin, const Shape& sides);

}  // namespace tutti::distribute

// How several values become one, as tf.distribute.ReduceOp; and the names of such enumerations.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "daemon/base/status.h"
#include "proto/types.h"

namespace tutti::faces {

// Where `name`, in lower or upper case, is among `names`. INVALID_ARGUMENT, which lists them, names
// the argument `what`.
Result<size_t> find_name(std::span<const std::string_view> names, const std::string& what,
                         std::string_view name);

enum class ReduceOp { sum, mean };
std::string_view name_of(ReduceOp op);  // "SUM" or "MEAN".
Result<ReduceOp> parse_reduce_op(std::string_view name);

// INVALID_ARGUMENT: bools, whose sum would be an OR; MEAN of integers, which would not be whole.
Status check_reducible(ReduceOp op, Dtype dtype);

}  // namespace tutti::faces

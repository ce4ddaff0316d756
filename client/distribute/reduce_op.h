// How the values of replicas become one, as tf.distribute.ReduceOp and tf.VariableAggregation.
#pragma once

#include <string>

#include "daemon/base/status.h"

namespace tutti::distribute {

enum class ReduceOp { sum, mean };

// How the values that replicas give a variable become one.
enum class Aggregation { none, sum, mean, only_first_replica };

// When the replicas' copies of a variable are made equal.
enum class Synchronization {
  automatic,  // on_write.
  none,       // Not supported, as in TensorFlow.
  on_write,   // At each assignment.
  on_read,    // When it is read outside of replicas; until then each has its own value.
};

// "SUM" or "MEAN".
std::string to_string(ReduceOp op);
std::string to_string(Aggregation aggregation);

// In lower or upper case. INVALID_ARGUMENT: another name.
Result<ReduceOp> parse_reduce_op(const std::string& name);
Result<Aggregation> parse_aggregation(const std::string& name);
Result<Synchronization> parse_synchronization(const std::string& name);

// SUM and MEAN. INVALID_ARGUMENT for the others.
Result<ReduceOp> reduce_op_of(Aggregation aggregation);

}  // namespace tutti::distribute

// How a variable's copies are kept, as tf.VariableAggregation and tf.VariableSynchronization.
#pragma once

#include <string>

#include "client/faces/base/base.h"

namespace tutti::distribute {

using namespace faces;

// How the values that replicas give a variable become one.
enum class Aggregation { none, sum, mean, only_first_replica };

// When the replicas' copies of a variable are made equal.
enum class Synchronization {
  automatic,  // on_write.
  none,       // Not supported, as in TensorFlow.
  on_write,   // At each assignment.
  on_read,    // When it is read outside of replicas; until then each has its own value.
};

std::string to_string(Aggregation aggregation);

// In lower or upper case. INVALID_ARGUMENT: another name.
Result<Aggregation> parse_aggregation(const std::string& name);
Result<Synchronization> parse_synchronization(const std::string& name);

// SUM and MEAN. INVALID_ARGUMENT for the others.
Result<ReduceOp> reduce_op_of(Aggregation aggregation);

}  // namespace tutti::distribute

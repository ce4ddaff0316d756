// What functions that make values or data sets are given, as tf.distribute.InputContext and
// tf.distribute.experimental.ValueContext. Plain values.
#pragma once

#include <cstdint>

#include "daemon/base/status.h"

namespace tutti::distribute {

// The batch of each replica. INVALID_ARGUMENT: no replicas, a negative batch, or one that the
// number of replicas does not divide.
Result<int64_t> get_per_replica_batch_size(int64_t global_batch_size, int num_replicas_in_sync);

// For a function that makes the data set of one worker.
struct InputContext {
  int num_input_pipelines = 1;   // Workers that read data.
  int input_pipeline_id = 0;     // Which of them this is: 0 to num_input_pipelines - 1.
  int num_replicas_in_sync = 1;  // Replicas of all workers.

  Result<int64_t> get_per_replica_batch_size(int64_t global_batch_size) const {
    return distribute::get_per_replica_batch_size(global_batch_size, num_replicas_in_sync);
  }
};

// For a function that makes the value of one replica.
struct ValueContext {
  int replica_id_in_sync_group = 0;  // 0 to num_replicas_in_sync - 1.
  int num_replicas_in_sync = 1;
};

// Rows of a batch: begin to end - 1.
struct Rows {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const Rows&) const = default;
};

// A replica's rows of a global batch of `rows`: each replica gets as many as the first, as long as
// there are any; the last ones may get fewer, or none. INVALID_ARGUMENT: negative rows; a replica
// that is not below num_replicas_in_sync.
Result<Rows> rows_of_replica(int64_t rows, const ValueContext& replica);

}  // namespace tutti::distribute

#include "client/faces/distribute/input_context.h"

#include <algorithm>

namespace tutti::distribute {

Result<int64_t> get_per_replica_batch_size(int64_t global_batch_size, int num_replicas_in_sync) {
  const std::string batch = "global_batch_size=" + std::to_string(global_batch_size);
  const std::string replicas = "num_replicas_in_sync=" + std::to_string(num_replicas_in_sync);
  if (num_replicas_in_sync < 1) return invalid_argument(replicas + " must be at least 1");
  if (global_batch_size < 0) return invalid_argument(batch + " must not be negative");
  if (global_batch_size % num_replicas_in_sync == 0)
    return global_batch_size / num_replicas_in_sync;
  return invalid_argument(batch + " is not divisible by " + replicas + "; use a multiple");
}

Result<Rows> rows_of_replica(int64_t rows, const ValueContext& replica) {
  const int64_t id = replica.replica_id_in_sync_group;
  const int64_t replicas = replica.num_replicas_in_sync;
  if (rows < 0 || id < 0 || id >= replicas)
    return invalid_argument("rows=" + std::to_string(rows) + " of replica " + std::to_string(id) +
                            " of " + std::to_string(replicas) + ": pass at least 0 rows, and a " +
                            "replica that exists");
  const int64_t each = rows / replicas + (rows % replicas == 0 ? 0 : 1);
  return Rows{std::min(id * each, rows), std::min((id + 1) * each, rows)};
}

}  // namespace tutti::distribute

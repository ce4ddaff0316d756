#include "client/distribute/input_context.h"

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

}  // namespace tutti::distribute

// The cluster from the variable TF_CONFIG, as tf.distribute's TFConfigClusterResolver.
#pragma once

#include "client/faces/distribute/resolver.h"

namespace tutti::distribute {

// TF_CONFIG is JSON and is read at every call:
//   {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index":
//   1},
//    "rpc_layer": "grpc", "session_master": "a:1"}
// Every key may be missing. A job's tasks may also be an object, {"0": "b:1", "4": "c:1"}. Without
// TF_CONFIG the cluster is empty.
//
// All calls: INVALID_ARGUMENT names TF_CONFIG, and the key or the column, if it cannot be read.
class TfConfigResolver : public Resolver {
 public:
  explicit TfConfigResolver(ResolverOptions options = {}) : Resolver(std::move(options)) {}

  Result<ClusterSpec> cluster_spec() const override;
  Result<Task> task() const override;
  Result<Accelerators> num_accelerators() const override { return own_gpus(); }
  Result<std::string> rpc_layer() const override;

 protected:
  // `session_master` as it is; else empty for a cluster of no jobs, or of one task; else the
  // address of the requested task, or of this one. INVALID_ARGUMENT: the task is not known.
  Result<std::string> find_master(const Task& task, const std::string& rpc_layer) const override;
};

}  // namespace tutti::distribute

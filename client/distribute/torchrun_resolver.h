// The cluster of a process that torchrun (torch.distributed.run) started. tf.distribute has no
// such resolver.
#pragma once

#include "client/distribute/launch_variables.h"
#include "client/distribute/resolver.h"

namespace tutti::distribute {

struct TorchrunOptions {
  std::string rpc_layer;
  Accelerators num_accelerators;
  Environment variables = process_environment();
};

// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Every rank is
// the worker of this number; torchrun tells the address of rank 0 only. Errors: read_launch();
// FAILED_PRECONDITION: MASTER_ADDR or MASTER_PORT is not set.
class TorchrunResolver : public Resolver {
 public:
  explicit TorchrunResolver(TorchrunOptions options = {}) : options_(std::move(options)) {}

  Result<ClusterSpec> cluster_spec() const override;
  Result<Task> task() const override;
  Result<Accelerators> num_accelerators() const override { return options_.num_accelerators; }
  Result<std::string> rpc_layer() const override { return options_.rpc_layer; }

  Result<Launch> launch() const;
  // TORCHELASTIC_RUN_ID: the same for all ranks of a job, and after its restarts; empty if not set.
  std::string run_id() const;
  // TORCHELASTIC_RESTART_COUNT: how often the ranks were started again; 0 if not set.
  // INVALID_ARGUMENT: not a number.
  Result<int> restart_count() const;

 protected:
  // The address of the requested task, else that of rank 0.
  Result<std::string> find_master(const Task& task, const std::string& rpc_layer) const override;

 private:
  TorchrunOptions options_;
};

}  // namespace tutti::distribute

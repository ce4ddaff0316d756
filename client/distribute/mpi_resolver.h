// The cluster of a process that mpirun or a PMI launcher started. tf.distribute has no such
// resolver.
#pragma once

#include "client/distribute/launch_variables.h"
#include "client/distribute/resolver.h"

namespace tutti::distribute {

struct MpiOptions {
  std::string master;  // Address of rank 0, which MPI does not tell; empty: not known.
  std::string rpc_layer;
  Accelerators num_accelerators;
  Environment variables = process_environment();
};

// Reads the variables of Open MPI (OMPI_COMM_WORLD_RANK, ..._SIZE, ..._LOCAL_RANK, ..._LOCAL_SIZE),
// MVAPICH2 (MV2_COMM_WORLD_RANK, too) or PMI as MPICH and Intel MPI set it (PMI_RANK,
// PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS): the first of these whose rank is set. Every rank is
// the worker of this number. Errors: read_launch().
class MpiResolver : public Resolver {
 public:
  explicit MpiResolver(MpiOptions options = {}) : options_(std::move(options)) {}

  Result<ClusterSpec> cluster_spec() const override;
  Result<Task> task() const override;
  Result<Accelerators> num_accelerators() const override { return options_.num_accelerators; }
  Result<std::string> rpc_layer() const override { return options_.rpc_layer; }

  Result<Launch> launch() const;

 protected:
  // The address of the requested task, else `master` of the options.
  Result<std::string> find_master(const Task& task, const std::string& rpc_layer) const override;

 private:
  MpiOptions options_;
};

}  // namespace tutti::distribute

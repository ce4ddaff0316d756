// The cluster of a process that a launcher of one process per rank started: torchrun
// (torch.distributed.run), mpirun or a PMI launcher. tf.distribute has no such resolvers.
#pragma once

#include <optional>
#include <string>

#include "client/faces/distribute/resolver.h"

namespace tutti::distribute {

struct Launch {
  int rank = 0;
  int world_size = 1;
  std::optional<int> local_rank = std::nullopt;        // Within the node.
  std::optional<int> local_world_size = std::nullopt;  // Ranks of the node.
  bool operator==(const Launch&) const = default;
};

// Every rank is the worker of its number. The variables are read at every call.
//
// FAILED_PRECONDITION: rank or world size is not set. INVALID_ARGUMENT: not a number; a rank that
// is not below its size; more than kTasksMax.
class LaunchResolver : public Resolver {
 public:
  using Resolver::Resolver;

  virtual Result<Launch> launch() const = 0;
  Result<Task> task() const override;

 protected:
  // The workers, of which the address of rank 0 is `master`; those of others are not known.
  Result<ClusterSpec> workers_at(const std::string& master) const;
  // The address of the requested task, else that of rank 0.
  Result<std::string> find_master(const Task& task, const std::string& rpc_layer) const override;
};

// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
// FAILED_PRECONDITION also: MASTER_ADDR or MASTER_PORT is not set.
class TorchrunResolver : public LaunchResolver {
 public:
  explicit TorchrunResolver(ResolverOptions options = {}) : LaunchResolver(std::move(options)) {}

  Result<ClusterSpec> cluster_spec() const override;
  Result<Launch> launch() const override;
  // TORCHELASTIC_RUN_ID: the same for all ranks of a job, and after its restarts; empty if not set.
  std::string run_id() const;
  // TORCHELASTIC_RESTART_COUNT: how often the ranks were restarted; 0 if not set. INVALID_ARGUMENT:
  // not a number.
  Result<int> restart_count() const;
};

// Reads the variables of Open MPI (OMPI_COMM_WORLD_RANK, ..._SIZE, ..._LOCAL_RANK, ..._LOCAL_SIZE),
// MVAPICH2 (MV2_COMM_WORLD_RANK and so on) or PMI as MPICH and Intel MPI set it (PMI_RANK,
// PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS): the first of these whose rank is set. MPI does not
// tell the address of rank 0: it is the options' master.
class MpiResolver : public LaunchResolver {
 public:
  explicit MpiResolver(ResolverOptions options = {}) : LaunchResolver(std::move(options)) {}

  Result<ClusterSpec> cluster_spec() const override { return workers_at(options().master); }
  Result<Launch> launch() const override;

 protected:
  Result<std::string> find_master(const Task& task, const std::string& rpc_layer) const override;
};

}  // namespace tutti::distribute

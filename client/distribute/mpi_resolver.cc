#include "client/distribute/mpi_resolver.h"

#include <algorithm>
#include <array>

namespace tutti::distribute {
namespace {

constexpr std::array<LaunchNames, 3> kNames = {{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
}};

}  // namespace

Result<Launch> MpiResolver::launch() const {
  const auto is_set = [&](const LaunchNames& names) {
    return options_.variables(names.rank).has_value();
  };
  const auto* found = std::ranges::find_if(kNames, is_set);
  if (found == kNames.end())
    return failed_precondition(
        "none of OMPI_COMM_WORLD_RANK, MV2_COMM_WORLD_RANK and PMI_RANK is set; start this process "
        "with mpirun");
  return read_launch(options_.variables, *found, "mpirun");
}

Result<ClusterSpec> MpiResolver::cluster_spec() const {
  const Result<Launch> own = launch();
  if (!own.ok()) return own.status();
  return workers_of(*own, options_.master);
}

Result<Task> MpiResolver::task() const {
  const Result<Launch> own = launch();
  if (!own.ok()) return own.status();
  return Task{"worker", own->rank};
}

Result<std::string> MpiResolver::find_master(const Task& task, const std::string& rpc_layer) const {
  if (options_.master.empty() && !task.known()) return std::string();
  return Resolver::find_master(task_or(task, {"worker", 0}), rpc_layer);
}

}  // namespace tutti::distribute

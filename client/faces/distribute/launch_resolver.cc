#include "client/faces/distribute/launch_resolver.h"

#include <algorithm>
#include <array>

namespace tutti::distribute {
namespace {

// The names of the variables. The last two may be unset.
struct LaunchNames {
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};

constexpr const char* kTorchrun = "torchrun";
constexpr LaunchNames kTorchrunNames = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr std::array<LaunchNames, 3> kMpiNames = {{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
}};

// The number of a variable that may be unset.
Status read_optional(const Environment& variables, const char* name, std::optional<int>& number) {
  const std::optional<std::string> text = variables(name);
  if (!text) return {};
  const Result<int> read = parse_number(*text, name);
  if (read.ok()) number = *read;
  return read.status();
}

Status validate_rank(const char* rank_name, int rank, const char* size_name, int size) {
  if (rank < size) return {};
  return invalid_argument(std::string(rank_name) + "=" + std::to_string(rank) + " is not below " +
                          size_name + "=" + std::to_string(size) + "; correct one of them");
}

// `launcher` names the program that sets the variables.
Result<Launch> read_launch(const Environment& variables, const LaunchNames& names,
                           const std::string& launcher) {
  const Result<int> rank = read_number(variables, names.rank, launcher);
  if (!rank.ok()) return rank.status();
  const Result<int> size = read_number(variables, names.world_size, launcher);
  if (!size.ok()) return size.status();
  if (*size > kTasksMax)
    return invalid_argument(std::string(names.world_size) + "=" + std::to_string(*size) +
                            " is more than " + std::to_string(kTasksMax) + "; correct it");
  Launch launch = {*rank, *size, {}, {}};
  Status status = validate_rank(names.rank, *rank, names.world_size, *size);
  if (status.ok()) status = read_optional(variables, names.local_rank, launch.local_rank);
  if (status.ok())
    status = read_optional(variables, names.local_world_size, launch.local_world_size);
  if (status.ok() && launch.local_rank && launch.local_world_size)
    status = validate_rank(names.local_rank, *launch.local_rank, names.local_world_size,
                           *launch.local_world_size);
  if (!status.ok()) return status;
  return launch;
}

}  // namespace

Result<Task> LaunchResolver::task() const {
  const Result<Launch> own = launch();
  if (!own.ok()) return own.status();
  return Task{"worker", own->rank};
}

Result<ClusterSpec> LaunchResolver::workers_at(const std::string& master) const {
  const Result<Launch> own = launch();
  if (!own.ok()) return own.status();
  ClusterSpec::Tasks workers;
  for (int rank = 0; rank < own->world_size; ++rank) workers[rank] = rank == 0 ? master : "";
  return ClusterSpec::create({{"worker", std::move(workers)}});
}

Result<std::string> LaunchResolver::find_master(const Task& task,
                                                const std::string& rpc_layer) const {
  return Resolver::find_master(task_or(task, {"worker", 0}), rpc_layer);
}

Result<Launch> TorchrunResolver::launch() const {
  return read_launch(options().variables, kTorchrunNames, kTorchrun);
}

Result<ClusterSpec> TorchrunResolver::cluster_spec() const {
  if (const Result<Launch> own = launch(); !own.ok()) return own.status();
  const Result<std::string> address = read_variable(options().variables, "MASTER_ADDR", kTorchrun);
  if (!address.ok()) return address.status();
  const Result<int> port = read_number(options().variables, "MASTER_PORT", kTorchrun);
  if (!port.ok()) return port.status();
  return workers_at(endpoint(*address, *port));
}

std::string TorchrunResolver::run_id() const {
  return options().variables("TORCHELASTIC_RUN_ID").value_or("");
}

Result<int> TorchrunResolver::restart_count() const {
  const std::string name = "TORCHELASTIC_RESTART_COUNT";
  return parse_number(options().variables(name).value_or("0"), name);
}

Result<Launch> MpiResolver::launch() const {
  const auto is_set = [&](const LaunchNames& names) {
    return options().variables(names.rank).has_value();
  };
  const auto* found = std::ranges::find_if(kMpiNames, is_set);
  if (found == kMpiNames.end())
    return failed_precondition(
        "none of OMPI_COMM_WORLD_RANK, MV2_COMM_WORLD_RANK and PMI_RANK is set; start this process "
        "with mpirun");
  return read_launch(options().variables, *found, "mpirun");
}

Result<std::string> MpiResolver::find_master(const Task& task, const std::string& rpc_layer) const {
  if (options().master.empty() && !task.known()) return std::string();
  return LaunchResolver::find_master(task, rpc_layer);
}

}  // namespace tutti::distribute

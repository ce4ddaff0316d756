#include "client/distribute/launch_variables.h"

namespace tutti::distribute {
namespace {

// The number of a variable that may be unset.
Status read_optional(const Environment& variables, const char* name, std::optional<int>& number) {
  const std::optional<std::string> text = name == nullptr ? std::nullopt : variables(name);
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

}  // namespace

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

Result<ClusterSpec> workers_of(const Launch& launch, const std::string& master) {
  ClusterSpec::Tasks workers;
  for (int rank = 0; rank < launch.world_size; ++rank) workers[rank] = rank == 0 ? master : "";
  return ClusterSpec::create({{"worker", std::move(workers)}});
}

}  // namespace tutti::distribute

// What a launcher that starts one process per rank tells each in variables. Shared by the resolvers
// of torchrun and of MPI.
#pragma once

#include <optional>
#include <string>

#include "client/distribute/cluster_spec.h"
#include "client/distribute/environment.h"

namespace tutti::distribute {

struct Launch {
  int rank = 0;
  int world_size = 1;
  std::optional<int> local_rank;        // Within the node.
  std::optional<int> local_world_size;  // Ranks of the node.
  bool operator==(const Launch&) const = default;
};

// The names of the variables; a null name is not read, and the last two may be unset.
struct LaunchNames {
  const char* rank = nullptr;
  const char* world_size = nullptr;
  const char* local_rank = nullptr;
  const char* local_world_size = nullptr;
};

// FAILED_PRECONDITION: rank or world size is not set; `launcher` names the program that sets them.
// INVALID_ARGUMENT: not a number; a rank that is not below its size; more than kTasksMax.
Result<Launch> read_launch(const Environment& variables, const LaunchNames& names,
                           const std::string& launcher);

// Every rank is a worker. The address of rank 0 is `master`, those of others are not known.
Result<ClusterSpec> workers_of(const Launch& launch, const std::string& master);

}  // namespace tutti::distribute

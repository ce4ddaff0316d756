// Which job to join as which rank: from the caller's options and the environment.
#pragma once

#include <cstdint>
#include <string>

#include "client/rank/error.h"

namespace tutti::client {

struct JoinTarget {
  std::string socket;  // Path of the agent's Unix socket.
  std::string job;
  std::string token;  // Empty: none.
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint32_t timeout_ms = 30'000;
  bool reproducible = false;  // Reductions that do not say otherwise.
  bool verifies = false;      // The results of calls that do not say otherwise.
  // Who told rank or world size: "TUTTI_*", "torchrun", "Open MPI", "PMI", "Slurm"; "": the caller.
  std::string launcher;
  std::string origin;  // By which variables: "RANK and WORLD_SIZE of torchrun"; "": by none.
};

// Reads `options`, which may be null, then the environment, then defaults. INVALID_ARGUMENT names
// the value that is missing or wrong, and its variable.
Status read_target(const tutti_join_options* options, JoinTarget& target);

// The error of a join, and which rank this is by which variables.
Status with_origin(const Status& why, const JoinTarget& target);

}  // namespace tutti::client

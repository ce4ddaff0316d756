// Which rank this process is, from the variables of the program that started it.
#pragma once

#include <optional>
#include <string>

namespace tutti::client {

// What one launcher tells a process. Texts that are pointers are static.
struct Launch {
  const char* launcher = "";         // "TUTTI_*", "torchrun", "Open MPI", "PMI", "Slurm".
  const char* rank_name = "";        // The variable's.
  const char* world_size_name = "";  // The same.
  std::optional<std::string> rank;   // As it stands in the variable.
  std::optional<std::string> world_size;
  // A name that is the same on all ranks of the launch and on none of another, such as
  // "torchrun-7" or "slurm-4711.0". Empty: the launcher gives none.
  std::string job;
  const char* how_to_name = "";  // How to give all its processes a TUTTI_JOB.
};

// The first of these that set both rank and world size: TUTTI_*, torchrun, Open MPI, PMI, Slurm;
// never the rank of one and the size of another. One of TUTTI_* alone counts, too, because a
// user who sets it means it.
std::optional<Launch> find_launch();

// Names all variables that find_launch() looks for, and those of them that are set.
std::string describe_launchers();

}  // namespace tutti::client

// The script of one simulated history of a mesh with one job, drawn from a seed: hosts, the worlds
// that come one after the other, and the faults. After `heals` nothing fails any more.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/membership/simulated_time.h"

namespace tutti::simulated {

struct Script {
  enum class Kind {
    agent_suspended,
    agent_dead,
    agent_ended,  // In order: it gives up its lease.
    worker_suspended,
    worker_dead,
    stream_cut,
    store_silent,
  };
  struct Fault {
    Kind kind;
    int host = 0;
    Ms at = 0;
    Ms takes = 0;
  };
  // From then on the job has these hosts, in order of its ranks.
  struct World {
    Ms from = 0;
    std::vector<int> hosts;
  };

  std::vector<int> ranks;  // Of each host.
  bool elects = true;      // Otherwise host 0 coordinates, and its states outlive it.
  Ms grace = 0;
  Ms timeout_most = 0;     // Of joins.
  Ms runs_most = 0;        // How long ranks stay in an epoch.
  int percent_lost = 0;    // Of requests to the store, or of their answers.
  int percent_late = 0;    // Done long after they were given up.
  int percent_deaths = 0;  // Of ranks that end.
  std::vector<World> worlds;
  std::vector<Fault> faults;
  Ms heals = 0;
};

Script draw(uint64_t seed);
std::string describe(const Script& script);

}  // namespace tutti::simulated

// A mesh with one job in simulated time, that follows a script. All along it is checked that
//
//   - nobody takes itself for the coordinator when another is elected, unless it is suspended;
//   - no two rosters of one number are sent;
//   - the number of the job's epoch in the store never goes back;
//   - a coordinator sends no roster while a worker that it hears has ranks in another epoch;
//   - joins end by a roster or a named error, and in time once nothing fails any more;
//   - then all ranks come together in one epoch, and stay there.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/membership/simulated_agents.h"
#include "tests/membership/simulated_workers.h"

namespace tutti::simulated {

class Mesh {
 public:
  Mesh(const Script& script, uint64_t seed, const Tampering& tampering = {}, bool traces = false);
  // Returns an empty string, or the first broken promise.
  std::string run();
  const std::vector<std::string>& trace() const { return timeline_.trace(); }
  const Workers::Counts& counts() const { return workers_.counts(); }
  int terms() const { return agents_.terms(); }
  uint64_t events() const { return timeline_.events_run(); }

 private:
  Network::Ends ends();
  void schedule(const Script::Fault& fault);
  void happen(const Script::Fault& fault);
  void end(const Script::Fault& fault);
  void check_roster(int agent, const v1::Roster& roster);

  const Script& script_;
  Timeline timeline_;
  Network network_;
  Workers workers_;
  Agents agents_;
  std::map<uint32_t, std::string> sent_;  // Rosters, by the numbers of their epochs.
  int silences_ = 0;                      // Faults for which the store is silent.
};

}  // namespace tutti::simulated

// The roster: the agreed ranks of a job by host, for one epoch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace tutti {

struct RosterRank {
  uint32_t pid = 0;
  std::string host;
  std::string address;  // Of the host's worker: where its data links are dialled.
  bool operator==(const RosterRank&) const = default;
};

struct Roster {
  std::string job;
  uint32_t epoch = 0;
  std::string secret;             // Proves membership on data links.
  std::string strategy;           // The job's set strategy; empty: auto.
  std::vector<RosterRank> ranks;  // Index: rank.
  bool operator==(const Roster&) const = default;
};

// "rank 3 (host b, pid 4711)": how every message names a rank.
inline std::string describe_rank(const Roster& roster, int rank) {
  const RosterRank& who = roster.ranks.at(static_cast<size_t>(rank));
  return "rank " + std::to_string(rank) + " (host " + who.host + ", pid " +
         std::to_string(who.pid) + ")";
}

}  // namespace tutti

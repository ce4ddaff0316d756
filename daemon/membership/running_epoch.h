// A running epoch of a job: which worker has which rank.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/membership/effects.h"

namespace tutti {

struct RunningEpoch {
  struct Member {
    WorkerStream worker = 0;  // 0: left, or its worker's stream broke.
    v1::RosterRank who;
    std::optional<TimePoint> awaited = {};  // Until when its worker may come back.
    bool was_here = true;                   // False: restored, and not resumed since.
  };

  // Nobody is in it yet. Its workers are awaited until then, if they are.
  RunningEpoch(const v1::Roster& roster, std::optional<TimePoint> awaited);

  std::set<WorkerStream> workers() const;
  std::vector<uint32_t> ranks_of(WorkerStream worker) const;
  bool has_unseen() const;  // Members that have not resumed since they were restored.
  bool is_left() const;     // Nobody is in it, and nobody is awaited.
  // Waits for the worker of these ranks to come back.
  void await(const std::vector<uint32_t>& ranks, TimePoint until);
  // The hosts whose workers are awaited no longer. Gives them their time again where that was
  // over long ago: the coordinator was suspended.
  std::set<std::string> late_hosts(TimePoint now, Millis grace);
  // The worker of the host has these ranks, and no others.
  void reattach(WorkerStream worker, const v1::Resume& resume);
  TimePoint next_deadline() const;

  uint32_t number;
  std::string secret;
  std::vector<Member> members;  // Index: rank.
};

}  // namespace tutti

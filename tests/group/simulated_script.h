// The script of one simulated history, drawn from a seed: the job, every rank's calls and their
// times, and the faults.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/roster.h"
#include "daemon/group/messages.h"
#include "tests/support/random.h"

namespace tutti::simulated {

using Us = int64_t;  // Simulated microseconds.

struct Script {
  struct Call {
    size_t group = 0;  // Index in `groups`.
    Signature signature;
    Status invalid;
    Us after = 0;  // Since the call before, or since its end if `waits`.
    uint32_t timeout_ms = 0;
  };
  struct Rank {
    std::vector<Call> calls;
    bool waits = false;  // For the end of each call before the next.
    bool goes = false;   // Leaves or dies after its calls.
    Us goes_after = 0;
    Status cause;  // OK: it leaves.
  };
  struct Stop {
    int host = 0;
    Us at = 0;
    Us until = 0;  // kNever: for good.
    bool dies = false;
  };
  struct Change {
    Us at = 0;
    bool measured = false;
    size_t group = 0;
    Strategy strategy;
  };
  static constexpr Us kNever = INT64_MAX;

  Roster roster;
  Strategies job;
  std::vector<Ranks> groups;  // The first is the whole job.
  std::vector<Rank> ranks;
  std::vector<Stop> stops;
  std::vector<Change> changes;
  Us link_delay_most = 2000;
  uint64_t budget_frames = 0;  // Of EarlyBudget.
  int window = 4;
  uint64_t fence_ahead = 0;
  bool only_disagrees = false;  // No other faults: operations on which all agree must end OK.

  static uint32_t number(size_t group) {
    return group == 0 ? 0 : 100 + static_cast<uint32_t>(group);
  }
};

Script draw(uint64_t seed);
std::string describe(const Script& script);

}  // namespace tutti::simulated

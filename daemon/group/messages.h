// The messages between the followers and the leader of an epoch (see group.h), as plain values.
// control.h converts them to frames; the simulator passes them as they are.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/op_id.h"
#include "daemon/base/signature.h"
#include "daemon/base/status.h"

namespace tutti {

// The most groups per epoch that a host makes; subgroup() fails beyond it, RESOURCE_EXHAUSTED.
inline constexpr size_t kGroupsMax = 4096;

// Ranks of the job, in a group's order. Sent with every message about a sub-group, so that a host
// can handle it before its own ranks make the group. Empty: the whole job, group 0.
using Ranks = std::vector<int>;

// The strategies in force: the job's, and for `auto` between hosts the measured best one by
// collective and size class (bit width of the bytes), where it differs from the cost model's.
struct StrategyTable {
  Strategies job;
  std::map<std::pair<Collective, int>, Strategy> measured;
  bool nccl = false;  // Values of operations on GPUs go between hosts by NCCL, if it can do that.
  bool operator==(const StrategyTable&) const = default;
};
int size_class(const Signature& signature);

// ---- Follower to leader ----

// A local rank made this group.
struct Announce {
  uint32_t group = 0;
  Ranks members;
};

// The state of an operation on a host.
struct Report {
  enum class Reason : uint8_t {
    answer,    // To a Query.
    waiting,   // The operation was called kCompareAfter ago and has not ended.
    late,      // Its deadline has passed here.
    mismatch,  // A frame from `peer` had another agreement.
    refusal,   // It cannot run because of `status`.
  };
  enum class Phase : uint8_t {
    refused,    // Not started, and never will be.
    started,    //
    over,       // Completed or failed.
    gathering,  // Not called by all local ranks yet. Only if `waiting`.
  };
  EpochOp op;
  Ranks members;
  Reason reason = Reason::answer;
  Phase phase = Phase::refused;
  std::vector<int> missing;  // If refused: local ranks (of the group) that did not call it.
  int rank = -1;             // A local rank that called it, -1: none; and what it asked for.
  Signature signature;
  uint64_t agreement = 0;   // If started.
  uint32_t timeout_ms = 0;  // If late.
  std::string waiting;      // If late or an answer, and started: what it waits for,
  int waiting_for = -1;     // and for which rank of the group; -1: none.
  int peer = -1;            // If mismatch: a host.
  Status status;            // If refusal.
};

// The host starts no operation at or past `number` until the proposal of this version is adopted.
struct Fence {
  uint32_t group = 0;
  uint32_t version = 0;
  uint64_t number = 0;
};

// ---- Leader to followers ----

// Asks for a Report. A host that has not started the operation refuses it from now on.
struct Query {
  EpochOp op;
  Ranks members;
};

// The operation fails for everyone, with this status.
struct Fail {
  EpochOp op;
  Ranks members;
  Status status;
};

// Asks for a Fence before this table is adopted.
struct Propose {
  uint32_t group = 0;
  Ranks members;
  uint32_t version = 0;
  StrategyTable table;
};

// The proposed table of that version is in force for operations `from` and later.
struct Adopt {
  uint32_t group = 0;
  uint32_t version = 0;
  uint64_t from = 0;
};

// ---- Follower to leader, and leader to all ----

// A rank of the job died or, if `cause` is OK, left on purpose. It had called the first `calls[g]`
// operations of group g, none of groups not listed; its host starts no later one.
struct RankGone {
  int rank = 0;
  Status cause;
  std::map<uint32_t, uint64_t> calls;
  // A rank whose departure had failed the last operation of this one, -1: none. It is to blame for
  // what this one has not called.
  int because_of = -1;
};

// A rank that is gone; cause OK: it left on purpose.
struct Departure {
  int rank = 0;
  Status cause;
  TimePoint at{};  // When this host learned of it.
};

// The epoch ends.
struct Abort {
  Status cause;
};

// ---- Host to host ----

// Asks for Started when the operation has started there (see early_budget.h).
struct WantStarted {
  EpochOp op;
};
// The operation has started here, or ended.
struct Started {
  EpochOp op;
};

using Message = std::variant<Announce, Report, Fence, Query, Fail, Propose, Adopt, RankGone, Abort,
                             WantStarted, Started>;

}  // namespace tutti

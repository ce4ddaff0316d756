// What the members and the leader of an epoch tell each other (see group.h). Plain values:
// control.h makes frames of them, and the simulator none.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/base/signature.h"
#include "daemon/base/status.h"

namespace tutti {

// One operation: the number-th of its group.
struct Key {
  uint32_t group = 0;
  uint64_t number = 0;
  auto operator<=>(const Key&) const = default;
};

// Groups of one epoch that a host makes; subgroup() refuses more, RESOURCE_EXHAUSTED.
inline constexpr size_t kGroupsMost = 4096;

// Ranks of the job, in a group's order. Goes with every message about a sub-group, so that a host
// can hear of one before its own ranks make it. Empty: the whole job, group 0.
using Members = std::vector<int>;

// Which strategies are in force: what the job asks for, and what `auto` between hosts means for
// operations of a collective and size class (the width of their bytes), where measurements say
// otherwise than the cost model.
struct StrategyTable {
  Strategies job;
  std::map<std::pair<Collective, int>, Strategy> measured;
  bool operator==(const StrategyTable&) const = default;
};
int size_class(const Signature& signature);

// ---- Member to leader ----

// A local rank made this group.
struct Announce {
  uint32_t group = 0;
  Members members;
};

// How an operation stands on a host.
struct Report {
  enum class Reason : uint8_t {
    answer,    // To a Query.
    waiting,   // Called a while ago and not over: do the others ask for the same?
    late,      // Its deadline has passed here.
    mismatch,  // A frame of `peer` had another agreement.
    refusal,   // It cannot run, because of `status`.
  };
  enum class Phase : uint8_t {
    refused,  // Not started here, and never will be.
    started,
    over,       // Completed or failed here.
    gathering,  // Not all ranks here have called it. Only where waiting.
  };
  Key key;
  Members members;
  Reason reason = Reason::answer;
  Phase phase = Phase::refused;
  std::vector<int> missing;  // Where refused: the local ranks (of the group) that did not call it.
  int rank = -1;             // A local one that did, and what it asked for; -1: none.
  Signature signature;
  uint64_t agreement = 0;   // Where started.
  uint32_t timeout_ms = 0;  // Where late.
  std::string waiting;      // Where late, or an answer, and started: for what, and for which rank
                            // of the group.
  int waiting_for = -1;
  int peer = -1;  // Where mismatch: a host.
  Status status;  // Where refusal.
};

// The host starts no operation at or past `number` until the proposal of this version is adopted.
struct Fence {
  uint32_t group = 0;
  uint32_t version = 0;
  uint64_t number = 0;
};

// ---- Leader to members ----

// How does the operation stand? A host that has not started it refuses it from now on.
struct Query {
  Key key;
  Members members;
};

// The operation fails for everyone, with this.
struct Fail {
  Key key;
  Members members;
  Status status;
};

struct Propose {
  uint32_t group = 0;
  Members members;
  uint32_t version = 0;
  StrategyTable table;
};

// The table of that version is in force for operations `from` and later.
struct Adopt {
  uint32_t group = 0;
  uint32_t version = 0;
  uint64_t from = 0;
};

// ---- Member to leader, and leader to all ----

// A rank of the job takes part no more; OK: it left on purpose. It called, of each group listed,
// the operations below the number, of others none; its host starts no later one.
struct Gone {
  int rank = 0;
  Status cause;
  std::map<uint32_t, uint64_t> bounds;
};

// The epoch is over.
struct Abort {
  Status cause;
};

// ---- Host to host ----

// Tell me when you have started it: I have much to send (early.h).
struct Want {
  Key key;
};
struct Started {
  Key key;
};

using Message =
    std::variant<Announce, Report, Fence, Query, Fail, Propose, Adopt, Gone, Abort, Want, Started>;

}  // namespace tutti

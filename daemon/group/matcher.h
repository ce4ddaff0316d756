// The leader's rules for operations, pure: arrivals, departures and the time in, verdicts out.
//
// An operation is the seq-th call of every member of a group. It starts when all members have
// arrived with the same signature. It fails, for everyone and with one status, when two signatures
// differ, a request is refused, a member that is gone had not arrived, or the earliest deadline
// passes. Either way there is exactly one verdict, the group goes on, and late arrivals at a failed
// operation change nothing (their host has the verdict already).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/roster.h"
#include "daemon/base/status.h"
#include "daemon/group/signature.h"

namespace tutti {

struct Arrival {
  uint32_t group = 0;
  uint64_t seq = 0;
  std::vector<int>
      members;   // Ranks of the job, in the group's order; the same with every arrival of a group.
  int rank = 0;  // Of the group.
  Signature signature;
  Status invalid;  // Not OK: the rank's request is refused.
  TimePoint deadline;
  uint32_t timeout_ms = 0;  // For the message.
};

struct Verdict {
  uint32_t group = 0;
  uint64_t seq = 0;
  std::vector<int> members;
  Status status;        // OK: run it.
  Signature signature;  // What was agreed, where OK.
};

class Matcher {
 public:
  explicit Matcher(const Roster& roster) : roster_(roster) {}

  // Nothing, or the one verdict this arrival brings about. INVALID_ARGUMENT where the arrival
  // contradicts earlier ones of its group or breaks the order: its sender is at fault.
  Result<std::optional<Verdict>> arrive(const Arrival& arrival);
  // The rank (of the job) takes part no more; `cause` says why, e.g. "rank 3 (host b, pid 4711)
  // died".
  std::vector<Verdict> gone(int rank, const Status& cause);
  std::vector<Verdict> expire(TimePoint now);
  std::optional<TimePoint> next_deadline() const;
  // Operations some members have arrived at and others not.
  size_t pending() const { return pending_.size(); }

 private:
  using Key = std::pair<uint32_t, uint64_t>;  // Group, seq.
  struct Pending {
    std::map<int, Signature> arrived;  // By rank of the group.
    TimePoint deadline = TimePoint::max();
    uint32_t timeout_ms = 0;
  };
  struct Group {
    std::vector<int> members;
    std::vector<uint64_t> next_seq;  // By rank of the group.
    std::set<uint64_t> failed;
  };

  Result<Group*> group_of(const Arrival& arrival);
  Verdict start(const Key& key, const Group& group, const Signature& signature);
  Verdict fail(const Key& key, Group& group, Status status);
  Status disagreement(const Key& key, const Group& group, const Pending& pending, int rank) const;
  Status absence(const Key& key, const Group& group, const Pending& pending, int rank,
                 const Status& cause) const;
  Status lateness(const Key& key, const Group& group, const Pending& pending) const;
  uint64_t passed_by_all(const Group& group) const;
  std::optional<int> first_gone(const Group& group, const Pending& pending) const;

  const Roster& roster_;
  std::map<uint32_t, Group> groups_;
  std::map<Key, Pending> pending_;
  std::map<int, Status> gone_;  // By rank of the job.
};

}  // namespace tutti

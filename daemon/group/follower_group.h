// What a follower knows of one group: its operations, failures and strategies. Pure; follower.h
// decides.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/group/call_counts.h"
#include "daemon/group/communicator.h"
#include "daemon/group/messages.h"

namespace tutti {

struct FollowerOperation {
  enum class Phase : uint8_t { gathering, refused, started, cancelled };
  // The first local call.
  struct FirstCall {
    int rank = -1;        // -1: no rank has called it.
    Signature signature;  // Canonical.
  };
  Phase phase = Phase::gathering;
  FirstCall first_call;
  std::vector<int> missing;  // If refused: ranks that had not called it then.
  Status end;                // If cancelled: the status of the calls once the engine has ended it.
  uint64_t agreement = 0;    // If started.
  TimePoint deadline = TimePoint::max();
  TimePoint timer = TimePoint::max();
  uint32_t timeout_ms = 0;
  bool compared = false;    // Reported to the leader for comparison.
  bool late = false;        // Reported to the leader as late.
  bool rechecking = false;  // Within kRecheck.
  bool mismatched = false;  // Reported to the leader as a mismatch.
};

class FollowerGroup {
 public:
  using Operation = FollowerOperation;
  using Phase = Operation::Phase;
  // What a started operation waits for: a text, and a rank of the group or -1.
  using Blocker = std::function<std::pair<std::string, int>(const EpochOp&)>;
  // The meaning of `auto` between hosts without measurements: the same on all hosts.
  using Automatic = std::function<Strategy(Collective, uint64_t bytes, const Communicator&)>;
  // Operations from `number` on fail because a rank had not called them.
  struct Cutoff {
    uint64_t number;
    size_t gone;  // Index in the follower's list of ranks that are gone.
  };

  FollowerGroup(uint32_t id, const Ranks& ranks, const std::vector<Host>& hosts, int self);

  // As messages name the group's ranks.
  Ranks named_ranks() const { return id == 0 ? Ranks() : who.members(); }

  // Null: it is not in progress.
  const Operation* find(uint64_t number) const;
  // Whether it has started here and neither completed nor failed.
  bool is_running(uint64_t number) const;
  bool has_running() const;
  // Whether it has completed or failed here, or will fail in any case.
  bool is_over(uint64_t number) const;
  // The failure that was decided before a local rank called it: its own, or the first cutoff.
  const Status* known_failure(uint64_t number) const;
  const Cutoff* cutoff(uint64_t number) const;
  // Forgets failures that all local ranks have got. Returns how many.
  size_t prune_failures();
  // It cannot start any more. Does nothing where it is past that.
  void refuse(uint64_t number, Operation& operation) const;
  // Operations from `bound` on fail. Returns those in progress that do.
  std::vector<std::pair<uint64_t, Signature>> cut_off(uint64_t bound, size_t gone);
  // From here on this host takes part in the operation, whatever messages arrive.
  void mark_started(uint64_t number, Operation& operation);
  Report report(uint64_t number, Report::Reason reason, const Blocker& blocker) const;

  // The strategies in force from that operation on.
  const StrategyTable& table(uint64_t number) const;
  // Whether each contribution on a GPU reaches the other hosts by itself.
  bool can_reproduce_on_gpus() const;
  // What a call with this signature means under a table.
  Strategies resolve(const StrategyTable& table, const Signature& signature,
                     const Automatic& automatic) const;
  bool goes_by_nccl(const StrategyTable& table, const Signature& signature) const;

  const uint32_t id;
  const Communicator who;
  CallCounts counts;
  const uint64_t hash;
  std::map<uint64_t, Operation> operations;
  std::map<uint64_t, Status> failed;         // Kept for local ranks that have yet to call them.
  std::vector<Cutoff> cutoffs;               // In the leader's order.
  uint64_t started_to = 0;                   // One past the last operation started.
  std::map<uint64_t, StrategyTable> tables;  // By the first operation each is in force for.
  std::optional<Propose> proposed;
  uint64_t fence = std::numeric_limits<uint64_t>::max();

 private:
  // What `auto` stands for between hosts, unless the call is reproducible.
  Strategy in_any_order(const StrategyTable& table, const Signature& signature,
                        const Automatic& automatic) const;

  // By collective and size class.
  mutable std::map<std::pair<Collective, int>, Strategy> automatic_;
};

}  // namespace tutti

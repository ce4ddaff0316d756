// One host's part in the agreement about operations. Pure: local events, the leader's messages and
// the time come in; a list of actions (messages to the leader, orders to the engine, results for
// local ranks) comes out, to be performed in order. group.h states the rules and why they are safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/roster.h"
#include "daemon/group/consequences.h"
#include "daemon/group/follower_group.h"
#include "daemon/group/messages.h"
#include "daemon/group/movement.h"

namespace tutti {

// An operation in progress for so long is reported to the leader for comparison: its hosts may run
// different operations and wait for each other.
inline constexpr Millis kCompareAfter{100};
// How long a follower that reported a deadline waits for the leader before it blames it.
inline constexpr Millis kLeaderTimeout{400};
// How long past the deadline of a failed operation links may keep borrowing its ranks' memory. Then
// the receiver is taken to have stopped, and the epoch ends, which cuts the links.
inline constexpr Millis kReleaseTimeout{200};
// Before a host blames another one for silence it waits this long once more, because the answer may
// be in its own sockets if it was stopped itself. The wait is repeated if it ends late.
inline constexpr Millis kRecheck{20};
// How many operations past the first not started a host may start during a change of strategies:
// about a round trip's worth.
inline constexpr uint64_t kFenceAhead = 32;
// The most failures kept for local ranks that have not called those operations yet; beyond it the
// epoch ends.
inline constexpr size_t kFailuresMax = 65'536;

// ---- Actions ----

struct Send {  // To the leader, or, from the leader, to the follower on that host.
  int host = 0;
  Message message;
};
struct Start {  // In the engine.
  EpochOp op;
  Signature signature;  // Canonical.
  Strategies strategies;
  uint64_t agreement = 0;
  bool by_nccl = false;
  Movement movement;
};
struct Cancel {  // In the engine, whether the operation was started or not.
  EpochOp op;
  Status cause;
};
struct Complete {  // The calls of all local ranks that wait for the operation.
  EpochOp op;
  Status status;
};
struct EndEpoch {  // Abort the engine; operations it runs complete after their on_finished().
  Status cause;
};
using Action = std::variant<Send, Start, Cancel, Complete, EndEpoch>;

struct FollowerRules {
  uint64_t slice_bytes = uint64_t{1} << 20;
  uint64_t fence_ahead = kFenceAhead;
  // The job's strategies when the epoch began.
  Strategies job;
  FollowerGroup::Automatic automatic;
  FollowerGroup::Blocker blocker;
};

class Follower {
 public:
  // `roster` and `hosts` must outlive it; `self`: this host's index in `hosts`.
  Follower(const Roster& roster, const std::vector<Host>& hosts, int self, FollowerRules rules);

  // ---- Events on this host ----

  // A local rank made this group. Idempotent. RESOURCE_EXHAUSTED: another group has the number.
  Status make_group(uint32_t group, const Ranks& members);
  struct Call {
    Signature signature;
    Status invalid;  // Not OK: the call is refused, so the operation fails for all.
    TimePoint deadline = TimePoint::max();
    uint32_t timeout_ms = 0;  // For the message.
    // If it is more than next(): the rank's calls below it will not come. They ended, or the ranks
    // of this host complete them among themselves.
    uint64_t number = 0;
  };
  // A local rank's next call of a group that was made.
  void on_call(uint32_t group, int rank, const Call& call, TimePoint now);
  // The lowest possible number of that call.
  uint64_t next(uint32_t group, int rank) const;
  // A local rank (of the job) died or, if OK, left on purpose.
  void leave(int rank, const Status& cause, TimePoint now);
  // The engine's run of a started operation ended. Not OK before a Cancel: ends the epoch.
  void on_finished(const EpochOp& op, const Status& status);
  // A frame of that host had another agreement.
  void on_mismatch(const EpochOp& op, int host);
  // A link with the host is lost. True: all its ranks had left, so nothing else fails.
  bool on_lost(int host, const Status& why);
  void abort(const Status& cause);

  // ---- Messages from the leader ----

  // Not OK: the leader broke the protocol.
  Status on_message(const Message& message, TimePoint now);

  // ---- Time ----

  void on_time(TimePoint now);
  // When on_time() is due.
  std::optional<TimePoint> next_timer() const;

  // ---- Output ----

  // To be performed in order, each once; performing them may cause more.
  std::vector<Action> take_actions() { return std::exchange(actions_, {}); }
  const Status& cause() const { return cause_; }  // Of the epoch's end; OK: it goes on.
  const Communicator* find(uint32_t group) const;
  // Whether the operation has started here and neither completed nor failed.
  bool is_running(const EpochOp& op) const;
  // Whether the operation has completed or failed here, or will fail in any case.
  bool is_over(const EpochOp& op) const;
  bool is_gone(int rank) const;
  // In the order in which this host learned of them.
  const std::vector<Departure>& departures() const { return departures_; }
  // How many operations are in progress here, plus the failures kept for later calls.
  size_t pending() const;
  // In force for the next operation to start.
  const StrategyTable& table(uint32_t group) const;

 private:
  using Operation = FollowerOperation;
  using Phase = FollowerOperation::Phase;

  void send_to_leader(Message message) { actions_.emplace_back(Send{0, std::move(message)}); }
  FollowerGroup* group_of(uint32_t number, const Ranks& members);
  void start_ready(FollowerGroup& group, TimePoint now);
  void compare_later(const EpochOp& op, const FollowerGroup& group, Operation& operation,
                     TimePoint now);
  void fail(const EpochOp& op, FollowerGroup& group, const Status& status);
  void complete(const EpochOp& op, FollowerGroup& group, const Status& status);
  void set_timer(const EpochOp& op, Operation& operation, TimePoint when);
  void on_timer(const EpochOp& op, TimePoint now);
  void report_late(const EpochOp& op, const FollowerGroup& group, Operation& operation,
                   TimePoint now);
  void blame_leader(const EpochOp& op, Operation& operation, TimePoint now);
  void cut_off(FollowerGroup& group, size_t gone);
  void end_epoch(const Status& cause);

  Status on(const Query& query, TimePoint now);
  Status on(const Fail& fail, TimePoint now);
  Status on(const RankGone& gone, TimePoint now);
  Status on(const Propose& propose, TimePoint now);
  Status on(const Adopt& adopt, TimePoint now);
  Status on(const Abort& abort, TimePoint now);
  template <class Other>
  Status on(const Other&, TimePoint) {
    return data_loss("a message that is not for a follower");
  }

  const Roster& roster_;
  const std::vector<Host>& hosts_;
  const int self_;
  const FollowerRules rules_;
  std::map<uint32_t, std::unique_ptr<FollowerGroup>> groups_;
  std::vector<RankGone> gone_;         // In the leader's order.
  std::vector<Departure> departures_;  // Those, and local ones that the leader has not confirmed.
  Consequences consequences_;
  std::set<std::pair<TimePoint, EpochOp>> timers_;
  size_t failures_ = 0;  // In all groups' `failed`.
  Status cause_;
  std::vector<Action> actions_;
};

// Whether frames of the operation need not be kept for later.
inline bool accepts_data(const Follower& follower, const EpochOp& op) {
  return follower.is_running(op) || follower.is_over(op);
}

}  // namespace tutti

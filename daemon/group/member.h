// One host's part in the agreement about operations. Pure: local events, the leader's messages and
// the time come in; a list of actions (messages to the leader, orders to the engine, results for
// local ranks) comes out, to be performed in order. group.h states the rules and why they are safe.
#pragma once

#include <cstdint>
#include <functional>
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
#include "daemon/group/call_counts.h"
#include "daemon/group/communicator.h"
#include "daemon/group/messages.h"

namespace tutti {

// An operation in progress for so long is reported to the leader for comparison: its hosts may run
// different operations and wait for each other.
inline constexpr Millis kCompareAfter{100};
// How long a member that reported a deadline waits for the leader before it blames it.
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

struct Send {  // To the leader, or, from the leader, to the member on that host.
  int host = 0;
  Message message;
};
struct Start {  // In the engine.
  Key key;
  Signature signature;  // Canonical.
  Strategies strategies;
  uint64_t agreement = 0;
  bool by_nccl = false;
};
struct Cancel {  // In the engine, whether the operation was started or not.
  Key key;
  Status cause;
};
struct Complete {  // The calls of all local ranks that wait for the operation.
  Key key;
  Status status;
};
struct EndEpoch {  // Abort the engine; operations it runs complete after their on_finished().
  Status cause;
};
using Action = std::variant<Send, Start, Cancel, Complete, EndEpoch>;

struct MemberRules {
  uint64_t slice_bytes = uint64_t{1} << 20;
  uint64_t fence_ahead = kFenceAhead;
  // The job's strategies when the epoch began.
  Strategies job;
  // The meaning of `auto` between hosts without measurements: the same on all hosts.
  std::function<Strategy(Collective, uint64_t bytes, const Communicator&)> automatic;
  // What a started operation waits for: a text, and a rank of the group or -1.
  std::function<std::pair<std::string, int>(const Key&)> blocker;
};

class Member {
 public:
  // `roster` and `hosts` must outlive it; `self`: this host's index in `hosts`.
  Member(const Roster& roster, const std::vector<Host>& hosts, int self, MemberRules rules);

  // ---- Events on this host ----

  // A local rank made this group. Idempotent. RESOURCE_EXHAUSTED: another group has the number.
  Status make_group(uint32_t group, const Members& members);
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
  void leave(int rank, const Status& cause);
  // The engine's run of a started operation ended. Not OK before a Cancel: ends the epoch.
  void on_finished(const Key& key, const Status& status);
  // A frame of that host had another agreement.
  void on_mismatch(const Key& key, int host);
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

  bool has_actions() const { return !actions_.empty(); }
  // To be performed in order, each once; performing them may cause more.
  std::vector<Action> take_actions() { return std::exchange(actions_, {}); }
  const Status& cause() const { return cause_; }  // Of the epoch's end; OK: it goes on.
  const Communicator* find(uint32_t group) const;
  // Whether the operation has started here and neither completed nor failed.
  bool is_running(const Key& key) const;
  // Whether the operation has completed or failed here, or will fail in any case.
  bool is_over(const Key& key) const;
  // Whether frames of the operation need not be kept for later.
  bool accepts_data(const Key& key) const { return is_running(key) || is_over(key); }
  bool is_gone(int rank) const;
  // The ranks that left or died, in the order in which this host learned of it.
  const std::vector<int>& departures() const { return departures_; }
  // How many operations are in progress here, plus the failures kept for later calls.
  size_t pending() const;
  // In force for the next operation to start.
  const StrategyTable& table(uint32_t group) const;

 private:
  // The first local call of an operation.
  struct FirstCall {
    int rank = -1;        // -1: no rank has called it.
    Signature signature;  // Canonical.
  };
  struct Operation {
    enum class Phase : uint8_t { gathering, refused, started, cancelled };
    Phase phase = Phase::gathering;
    FirstCall first_call;
    std::vector<int> missing;  // If refused: ranks that had not called it then.
    Status end;              // If cancelled: the status of the calls once the engine has ended it.
    uint64_t agreement = 0;  // If started.
    TimePoint deadline = TimePoint::max();
    TimePoint timer = TimePoint::max();
    uint32_t timeout_ms = 0;
    bool compared = false;    // Reported to the leader for comparison.
    bool late = false;        // Reported to the leader as late.
    bool rechecking = false;  // Within kRecheck.
    bool mismatched = false;  // Reported to the leader as a mismatch.
  };
  // Operations from `number` on fail because a rank had not called them.
  struct Cutoff {
    uint64_t number;
    size_t gone;  // Index in gone_.
  };
  struct Group {
    Group(uint32_t number, const Members& members, const std::vector<Host>& hosts, int self)
        : number(number), who(members, hosts, self), counts(who), hash(hash_of(members)) {}
    const uint32_t number;
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
    mutable std::map<std::pair<Collective, int>, Strategy> automatic;  // Cache of rules_.automatic.
  };

  template <class T>
  void emit(T action) {
    actions_.emplace_back(std::move(action));
  }
  void send_to_leader(Message message) { emit(Send{0, std::move(message)}); }
  Group* group_of(uint32_t number, const Members& members);
  static Members named_members(const Group& group);
  void start_ready(Group& group, TimePoint now);
  void start(const Key& key, Group& group, Operation& operation);
  void compare_later(const Key& key, const Group& group, Operation& operation, TimePoint now);
  static void refuse(const Key& key, const Group& group, Operation& operation);
  Status check_call(const Key& key, const Group& group, const Operation& operation, int rank,
                    const Call& call) const;
  std::optional<Status> known_failure(const Key& key, const Group& group,
                                      const Signature& signature) const;
  bool is_over(const Group& group, uint64_t number) const;
  void fail(const Key& key, Group& group, const Status& status);
  void prune_failures(Group& group);
  void complete(const Key& key, Group& group, const Status& status);
  void set_timer(const Key& key, Operation& operation, TimePoint when);
  void on_timer(const Key& key, TimePoint now);
  void report_late(const Key& key, const Group& group, Operation& operation, TimePoint now);
  void blame_leader(const Key& key, Operation& operation, TimePoint now);
  Report report(const Key& key, const Group& group, Report::Reason reason) const;
  static const StrategyTable& table_for(const Group& group, uint64_t number);
  Strategies resolve(const Group& group, const StrategyTable& table,
                     const Signature& signature) const;
  static bool goes_by_nccl(const Group& group, const StrategyTable& table,
                           const Signature& signature);
  void cut_off(Group& group, size_t gone);
  bool runs_with(int host) const;
  void end_epoch(const Status& cause);

  Status on(const Query& query, TimePoint now);
  Status on(const Fail& fail, TimePoint now);
  Status on(const RankGone& gone, TimePoint now);
  Status on(const Propose& propose, TimePoint now);
  Status on(const Adopt& adopt, TimePoint now);
  Status on(const Abort& abort, TimePoint now);
  template <class Other>
  Status on(const Other&, TimePoint) {
    return data_loss("a message that is not for a member");
  }

  const Roster& roster_;
  const std::vector<Host>& hosts_;
  const int self_;
  const MemberRules rules_;
  std::map<uint32_t, std::unique_ptr<Group>> groups_;
  std::vector<RankGone> gone_;   // In the leader's order.
  std::vector<int> departures_;  // Those, and local ones that the leader has not confirmed.
  std::set<std::pair<TimePoint, Key>> timers_;
  size_t failures_ = 0;  // In all groups' `failed`.
  Status cause_;
  std::vector<Action> actions_;
};

}  // namespace tutti

// One host's side of the agreement about operations: pure. Local events, the leader's messages and
// the time come in; messages, orders to the engine and verdicts for local ranks go out, as a list
// of actions to be done in order. The rules and why they are safe: group.h.
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
#include "daemon/group/communicator.h"
#include "daemon/group/matcher.h"
#include "daemon/group/messages.h"

namespace tutti {

// An operation that runs for so long may wait for hosts that run another one, and that wait as
// well: it is compared.
inline constexpr Millis kCompareAfter{100};
// How long after it reported a deadline a member waits for the leader.
inline constexpr Millis kLeaderAnswers{400};
// How long past the deadline of a failed operation links may still send from its ranks' memory.
// Then a receiver has stopped, and the epoch ends, which cuts the links.
inline constexpr Millis kLettingGo{200};
// Who waited in vain looks again for so long before it blames another: had it been stopped itself,
// the answer lies in its own sockets. A look that itself ends late does not count.
inline constexpr Millis kLook{20};
// Operations that a host may start beyond the first it has not, while a change of strategies is
// under way: a round trip's worth.
inline constexpr uint64_t kFenceAhead = 32;
// Failures kept for local ranks that have not come so far; past it the epoch ends.
inline constexpr size_t kFailedMost = 65'536;

// What the member and the leader want done.
struct Tell {
  int host = 0;
  Message message;
};
struct Start {
  Key key;
  Signature signature;  // Canonical.
  Strategies strategies;
  uint64_t agreement = 0;
};
struct Cancel {  // The engine forgets it, whether it was started or not.
  Key key;
  Status cause;
};
struct Answer {  // To every local rank that has called it and has no answer.
  Key key;
  Status status;
};
struct End {  // The epoch is over: abort the engine; what it ran is answered when it is finished().
  Status cause;
};
using Action = std::variant<Tell, Start, Cancel, Answer, End>;

// How a host decides for itself what it was not told.
struct MemberRules {
  uint64_t slice_bytes = uint64_t{1} << 20;
  uint64_t fence_ahead = kFenceAhead;
  // The job's strategies when the epoch began.
  Strategies job;
  // What `auto` between hosts means where nothing was measured: the same on all hosts.
  std::function<Strategy(Collective, uint64_t bytes, const Communicator&)> automatic;
  // What a started operation waits for: words, and a rank of the group or -1.
  std::function<std::pair<std::string, int>(const Key&)> waiting;
};

class Member {
 public:
  Member(const Roster& roster, const std::vector<Host>& hosts, int self, MemberRules rules);

  // ---- From this host ----

  // A local rank made this group. Idempotent.
  Status make(uint32_t group, const Members& members);
  struct Call {
    Signature signature;
    Status invalid;  // Not OK: refused, and with it the operation for all.
    TimePoint deadline = TimePoint::max();
    uint32_t timeout_ms = 0;  // For the message.
  };
  // The next operation of a local rank of a group that was made.
  void arrive(uint32_t group, int rank, const Call& call, TimePoint now);
  uint64_t next(uint32_t group, int rank) const;
  // The rank's calls below this number need not come: they are over, or settled among the ranks of
  // this host alone.
  void skip(uint32_t group, int rank, uint64_t number);
  // A local rank (of the job) takes part no more; OK: on purpose.
  void leave(int rank, const Status& cause);
  // The engine has ended what it was told to start; every operation once, in the end of the epoch
  // as well.
  void finished(const Key& key, const Status& status);
  // A frame of another agreement came from that host.
  void mismatched(const Key& key, int host);
  // The links to that host are. True: its ranks had all left, and nobody here misses it.
  bool lost(int host, const Status& why);
  // The epoch cannot go on.
  void abort(const Status& cause);

  // ---- From the leader: not OK, it broke the protocol ----

  Status take(const Message& message, TimePoint now);

  // ---- Time ----

  void expire(TimePoint now);
  std::optional<TimePoint> next_wake() const;

  // ---- Out ----

  bool has_actions() const { return !actions_.empty(); }
  // In order, each to be done once; doing them may bring about more.
  std::vector<Action> take_actions() { return std::exchange(actions_, {}); }
  const Status& cause() const { return cause_; }  // Of the epoch's end; OK: it goes on.
  const Communicator* find(uint32_t group) const;
  // Started here, or over: its data can be taken, or is dropped.
  bool can_take(const Key& key) const;
  bool is_over(const Key& key) const;
  bool is_gone(int rank) const;
  size_t gone() const { return departures_.size(); }
  // The ranks that are gone, in the order in which this host learned of it.
  const std::vector<int>& departures() const { return departures_; }
  // Operations called or refused here and not over, and failures kept for later ranks.
  size_t pending() const;
  const StrategyTable& table(uint32_t group) const;  // In force for the next operation to start.
  Strategies resolve(uint32_t group, const Signature& signature) const;  // By that table.

 private:
  struct Operation {
    enum class Phase : uint8_t { gathering, refused, started, cancelled };
    Phase phase = Phase::gathering;
    Agreed agreed;
    std::vector<int> missing;  // Where refused: who had not called it then.
    Status end;              // Where cancelled: what the ranks are told when the engine has let go.
    uint64_t agreement = 0;  // Where started.
    TimePoint deadline = TimePoint::max();
    TimePoint wakes = TimePoint::max();
    uint32_t timeout_ms = 0;
    bool compared = false;    // The leader has been asked to.
    bool late = false;        // The leader was told so.
    bool looking = false;     // Once more, before the leader is blamed.
    bool mismatched = false;  // The leader was told so.
  };
  struct Bound {
    uint64_t number;  // Operations from here on fail:
    size_t gone;      // index in gone_.
  };
  struct Group {
    Group(uint32_t number, const Members& members, const std::vector<Host>& hosts, int self)
        : number(number), who(members, hosts, self), ranks(who), hash(hash_of(members)) {}
    const uint32_t number;
    const Communicator who;
    Matcher ranks;
    const uint64_t hash;
    std::map<uint64_t, Operation> operations;
    std::map<uint64_t, Status> failed;         // For local ranks that have not come so far.
    std::vector<Bound> bounds;                 // In the leader's order.
    uint64_t started_to = 0;                   // Past the last one started.
    std::map<uint64_t, StrategyTable> tables;  // By the first operation each is in force for.
    std::optional<Propose> proposed;
    uint64_t fence = std::numeric_limits<uint64_t>::max();
    mutable std::map<std::pair<Collective, int>, Strategy> automatic;  // Asked before.
  };

  template <class T>
  void act(T action) {
    actions_.emplace_back(std::move(action));
  }
  void tell(Message message) { act(Tell{0, std::move(message)}); }
  Group* group_of(uint32_t number, const Members& members);
  static Members named(const Group& group);
  void start_what_can(Group& group, TimePoint now);
  void start(const Key& key, Group& group, Operation& operation);
  void compare_soon(const Key& key, const Group& group, Operation& operation, TimePoint now);
  static void refuse(const Key& key, const Group& group, Operation& operation);
  void refuse_for(const Key& key, const Group& group, Operation& operation, const Status& status);
  Status match(const Key& key, const Group& group, const Operation& operation, int rank,
               const Call& call) const;
  std::optional<Status> verdict(const Key& key, const Group& group,
                                const Signature& signature) const;
  bool is_over(const Group& group, uint64_t number) const;
  void end(const Key& key, Group& group, const Status& status);
  void prune(Group& group);
  void complete(const Key& key, Group& group, const Status& status);
  void wake(const Key& key, Operation& operation, TimePoint when);
  void overdue(const Key& key, TimePoint now);
  void report_late(const Key& key, const Group& group, Operation& operation, TimePoint now);
  void blame_leader(const Key& key, Operation& operation, TimePoint now);
  Report report(const Key& key, const Group& group, Report::Reason reason) const;
  static const StrategyTable& table_for(const Group& group, uint64_t number);
  Strategies resolve(const Group& group, const StrategyTable& table,
                     const Signature& signature) const;
  void bind(Group& group, size_t gone);
  bool runs_with(int host) const;
  void end_epoch(const Status& cause);

  Status on(const Query& query, TimePoint now);
  Status on(const Fail& fail, TimePoint now);
  Status on(const Gone& gone, TimePoint now);
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
  std::vector<Gone> gone_;       // As the leader told.
  std::vector<int> departures_;  // Those, and local ones yet to be told of.
  std::set<std::pair<TimePoint, Key>> wakes_;
  size_t failures_ = 0;  // In all groups' `failed`.
  Status cause_;
  std::vector<Action> actions_;
};

}  // namespace tutti

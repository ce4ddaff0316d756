// The leader's side, on rank 0's host: what is out of the ordinary is decided here, once, for
// everyone. Pure: the members' messages and the time come in, messages to members go out. What it
// tells all members of a group reaches each of them in the same order. The rules and why they are
// safe: group.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "daemon/group/member.h"

namespace tutti {

// Operations that hosts wait for, whose descriptions are kept to be compared; the oldest go first.
inline constexpr size_t kComparedMost = 1024;
// How long the hosts have to say how a late operation stands with them.
inline constexpr Millis kHostsAnswer{250};

class Leader {
 public:
  // `job`: the strategies when the epoch began.
  Leader(const Roster& roster, const std::vector<Host>& hosts, const Strategies& job);

  // Not OK: the host broke the protocol.
  Status take(int host, const Message& message, TimePoint now);
  // A host whose ranks have all left has gone for good.
  void departed(int host);
  void expire(TimePoint now);
  std::optional<TimePoint> next_wake() const;
  std::vector<Tell> take_tells() { return std::exchange(tells_, {}); }

  // ---- Strategies: in force from some operation on, as soon as all hosts have heard ----

  // The job's, for every group.
  void set_job(const Strategies& job);
  // What `auto` means in a group for operations of a size.
  void set_measured(uint32_t group, Collective collective, int size_class, const Strategy& global);

  // Groups of which something is under way: questions, and changes of strategies.
  size_t pending() const;

 private:
  struct Inquiry {
    Members members;
    std::map<int, Report> reports;  // By host, the last of each.
    std::set<int> answered;         // The Query.
    std::vector<int> late;          // Hosts, in the order of their reports.
    Report first;                   // Of those, or the mismatch's.
    int mismatch = -1;              // The host that reported it, and the one that it met.
    int peer = -1;
    TimePoint until;
    bool looking = false;  // As a member does before it blames.
  };
  // A group as far as strategies are concerned.
  struct Led {
    Members members;
    StrategyTable table;  // As proposed last.
    StrategyTable wanted;
    uint32_t version = 0;
    bool proposing = false;
    std::map<int, uint64_t> fences;  // By host.
  };
  using Inquiries = std::map<Key, Inquiry>;

  template <class Kind>
  Status on(int, const Kind&, TimePoint) {
    return data_loss("a message that is not for the leader");
  }
  Status on(int host, const Announce& announce, TimePoint now);
  Status on(int host, const Report& report, TimePoint now);
  Status on(int host, const Fence& fence, TimePoint now);
  Status on(int host, const Gone& gone, TimePoint now);
  Status on(int host, const Abort& abort, TimePoint now);

  const Members& members_of(uint32_t group, const Members& named) const;
  std::vector<int> places(const Members& members) const;
  bool is_group(uint32_t number, const Members& members) const;
  Status check(int host, const Report& report) const;
  bool is_doomed(const Key& key, const Members& members) const;
  void tell_group(const Members& members, const Message& message);
  void fail(const Key& key, const Members& members, const Status& status);
  void end(const Status& cause);
  Inquiry& inquire(const Report& report, TimePoint now);
  bool is_answered(const Inquiry& inquiry) const;
  void conclude(Inquiries::iterator inquiry);
  void compare(const Report& report, const Members& members);
  void remember(const Report& report);
  Status disagreement(const Members& members, const Report& one, const Report& other) const;
  Status slowness(const Inquiry& inquiry) const;
  std::optional<std::pair<int, int>> differing(const Inquiry& inquiry) const;
  Status lateness(const Inquiry& inquiry, const std::vector<const Host*>& silent) const;
  void propose(uint32_t number, Led& group);
  void adopt_if_fenced(uint32_t number, Led& group);

  const Roster& roster_;
  const std::vector<Host>& hosts_;
  Members all_;
  std::vector<int> home_;       // Of each rank of the job.
  const Strategies first_job_;  // When the epoch began.
  Strategies job_;
  std::map<uint32_t, Led> groups_;
  Inquiries inquiries_;
  struct Compared {
    Report report;
    uint64_t since;  // How many came before.
  };
  std::map<Key, Compared> waiting_;  // What the first host that waits for it runs.
  uint64_t compared_ = 0;
  std::map<int, Gone> gone_;  // By rank.
  std::set<int> departed_;
  bool over_ = false;
  std::vector<Tell> tells_;
};

}  // namespace tutti

// The leader of an epoch, on rank 0's host: decides failures and changes of strategies for all
// hosts. Pure: the followers' messages and the time come in, messages to followers come out. All
// hosts of a group receive its messages in the same order. group.h states the rules and why they
// are safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "daemon/group/follower.h"

namespace tutti {

// The most waiting operations whose reports are kept for comparison; the oldest are dropped first.
inline constexpr size_t kComparedMax = 1024;
// How long hosts may take to answer a Query.
inline constexpr Millis kQueryTimeout{250};

class Leader {
 public:
  // `roster` and `hosts` must outlive it. `job`: the strategies when the epoch began.
  Leader(const Roster& roster, const std::vector<Host>& hosts, const Strategies& job);

  // Not OK: the host broke the protocol.
  Status on_message(int host, const Message& message, TimePoint now);
  // A host whose ranks have all left closed its links.
  void on_host_departed(int host);
  void on_time(TimePoint now);
  std::optional<TimePoint> next_timer() const;
  std::vector<Send> take_sends() { return std::exchange(sends_, {}); }

  // ---- Strategies: take effect when all hosts of the group have sent their fence ----

  // The job's strategies, for every group.
  void set_job(const Strategies& job);
  // The meaning of `auto` between hosts in a group, for operations of a size class.
  void set_measured(uint32_t group, Collective collective, int size_class, const Strategy& global);

  // The hosts have made a communicator of NCCL, for the group of the whole job.
  void use_nccl();

  // The number of open queries and changes of strategies.
  size_t pending() const;

 private:
  // A late or mismatched operation whose hosts were sent a Query.
  struct PendingQuery {
    Ranks members;
    std::map<int, Report> reports;  // The last of each host.
    std::set<int> answered;         // Hosts that answered the Query.
    std::vector<int> late;          // Hosts that reported it late, in order.
    Report first;                   // The first such report, or the mismatch's.
    int mismatch = -1;              // The host that reported a mismatch, and
    int peer = -1;                  // the host whose frame it was.
    TimePoint until;
    bool rechecking = false;  // Within kRecheck.
  };
  // The strategies of one group.
  struct GroupStrategies {
    Ranks members;
    StrategyTable table;  // The last proposed.
    StrategyTable wanted;
    uint32_t version = 0;
    bool proposing = false;
    std::map<int, uint64_t> fences;  // By host.
  };
  using Queries = std::map<EpochOp, PendingQuery>;

  template <class Kind>
  Status on(int, const Kind&, TimePoint) {
    return data_loss("a message that is not for the leader");
  }
  Status on(int host, const Announce& announce, TimePoint now);
  Status on(int host, const Report& report, TimePoint now);
  Status on(int host, const Fence& fence, TimePoint now);
  Status on(int host, const RankGone& gone, TimePoint now);
  Status on(int host, const Abort& abort, TimePoint now);

  const Ranks& members_of(uint32_t group, const Ranks& named) const;
  std::vector<int> hosts_with(const Ranks& members) const;
  bool is_group(uint32_t number, const Ranks& members) const;
  Status check(int host, const Report& report) const;
  bool is_cut_off(const EpochOp& op, const Ranks& members) const;
  void send_to_hosts(const Ranks& members, const Message& message);
  void fail(const EpochOp& op, const Ranks& members, const Status& status);
  void abort(const Status& cause);
  PendingQuery& open_query(const Report& report, TimePoint now);
  bool is_answered(const PendingQuery& query) const;
  void conclude(Queries::iterator query);
  void compare(const Report& report, const Ranks& members);
  void remember(const Report& report);
  Status disagreement(const Ranks& members, const Report& one, const Report& other) const;
  Status slowness(const PendingQuery& query) const;
  std::optional<std::pair<int, int>> differing(const PendingQuery& query) const;
  Status lateness(const PendingQuery& query, const std::vector<const Host*>& silent) const;
  void propose(uint32_t number, GroupStrategies& group);
  void adopt_if_fenced(uint32_t number, GroupStrategies& group);

  const Roster& roster_;
  const std::vector<Host>& hosts_;
  Ranks all_;
  std::vector<int> home_;       // Of each rank of the job.
  const Strategies first_job_;  // When the epoch began.
  Strategies job_;
  std::map<uint32_t, GroupStrategies> groups_;
  Queries queries_;
  // The first `waiting` report of an operation; the others are compared with it.
  struct WaitingReport {
    Report report;
    uint64_t order;
  };
  std::map<EpochOp, WaitingReport> waiting_;
  uint64_t waiting_count_ = 0;    // Ever inserted.
  std::map<int, RankGone> gone_;  // By rank.
  std::set<int> departed_;
  bool over_ = false;
  std::vector<Send> sends_;
};

}  // namespace tutti

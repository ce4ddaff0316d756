// The coordinator's rules: which ranks form which epoch of a job. A pure state machine: what
// workers say, random secrets and the time go in, the messages to send come out. No IO, threads or
// clock, so that every rule can be tested alone.
//
// A job has at most one running epoch. A rank may join the next one once it has left the running
// one. The next epoch starts when all ranks of its world have joined and no rank is left in the
// running one. An epoch ends at once, for all its ranks, if one of them dies.
//
// An epoch's number is one more than the highest that the coordinator or a worker has seen, so that
// numbers are not reused after a coordinator has lost its state. Ranks that wait for the same epoch
// but disagree on the world size are all refused at once: none of them can be proven right.
//
// A job belongs to the user and subject that began it, on every host, until no rank is in it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/base/credentials.h"
#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "daemon/mesh/last_epochs.h"
#include "proto/mesh.pb.h"

namespace tutti {

class Membership {
 public:
  using Worker = uint64_t;  // Identifies one stream of a worker; never 0, never reused.
  struct Message {
    Worker to;
    v1::CoordinatorMessage body;
  };
  using Messages = std::vector<Message>;

  // Says whose signatures under passes are believed.
  explicit Membership(Credentials credentials) : credentials_(std::move(credentials)) {}

  // An epoch's secret is that of the last join before it starts.
  Messages join(Worker worker, const v1::JoinRank& join, const std::string& secret, TimePoint now);
  Messages rank_gone(Worker worker, const v1::RankGone& gone);
  // A worker has reconnected and reports its newest epoch, which this coordinator may not know.
  Messages resume(Worker worker, const v1::Resume& resume);
  // The worker's stream has ended; its ranks count as gone.
  Messages worker_gone(Worker worker);
  // Refuses the joins whose time is up. To be called once `now` has reached next_deadline().
  Messages expire(TimePoint now);
  TimePoint next_deadline() const;  // TimePoint::max(): no rank waits.
  // NOT_FOUND: no rank is in the job, or it is not `owner`'s, unless that is null. `strategy` is
  // not checked.
  Result<Messages> set_strategy(const std::string& job, const std::string& strategy,
                                const v1::Owner* owner = nullptr);

  size_t jobs() const { return jobs_.size(); }  // Jobs that have ranks.

 private:
  struct PendingJoin {
    Worker worker;
    v1::JoinRank join;
    TimePoint deadline;
  };
  struct Member {
    Worker worker = 0;  // 0: left, or not resumed since the coordinator started.
    v1::RosterRank who;
  };
  struct RunningEpoch {
    uint32_t epoch;
    std::string secret;
    std::vector<Member> members;  // Index: rank.
  };
  struct Job {
    v1::Owner owner;  // Who began it.
    LastEpoch last;
    std::string strategy;
    std::map<uint32_t, PendingJoin> pending_joins;  // By rank.
    std::set<uint32_t> timed_out;  // Ranks that have joined the next epoch and timed out since.
    std::string secret;            // For the next epoch.
    std::optional<RunningEpoch> running;
  };

  Status check(const v1::JoinRank& join) const;
  // Whether the pass is genuine, and of the job's owner, for the job on this host.
  Status check_pass_for(const v1::Pass& pass, const std::string& job,
                        const std::string& host) const;
  Messages end_former_stream(Worker worker, const v1::JoinRank& join);
  static Status check_rank_is_free(const Job& job, const v1::JoinRank& join);
  static Status check_host(const Job& job, const v1::JoinRank& join);
  static bool same_world_size(const Job& job, const v1::JoinRank& join);
  Job& find_or_create(const std::string& name, const v1::Pass& pass);
  // Called after every change of a job: starts the next epoch if it is complete, and erases the job
  // if it is empty, which invalidates references to it.
  void advance(const std::string& name, Messages& out);
  static std::set<Worker> workers_of(const RunningEpoch& running);
  static void send_to(Messages& out, const std::set<Worker>& workers,
                      const v1::CoordinatorMessage& message);
  static Message refusal(const PendingJoin& pending, const Status& status);
  static Status timeout_status(const Job& job);

  // Refuses all pending joins and `late`, whose world size differs from theirs.
  static void refuse_world_size(Job& job, const PendingJoin& late, Messages& out);
  static void start_epoch(Job& job, const std::string& name, Messages& out);
  static v1::CoordinatorMessage aborted_message(const std::string& job, uint32_t epoch,
                                                const Status& cause);
  // Ends the running epoch and tells its workers, all but `except`.
  static void abort_epoch(Job& job, const std::string& name, const Status& cause, Worker except,
                          Messages& out);
  static void end_by_death(Job& job);
  static bool is_running(const Job& job, const v1::Resume& resume);
  // Makes the epoch of a resume, which is newer than all known ones, the job's newest.
  static void adopt_epoch(Job& job, Worker worker, const v1::Resume& resume, Messages& out);
  // Assigns the ranks of a resume to the worker's new stream.
  static void reattach(Job& job, Worker worker, const v1::Resume& resume);
  static void remove_worker(Job& job, Worker worker, const std::string& name, Messages& out);

  Credentials credentials_;
  std::map<std::string, Job> jobs_;
  LastEpochs last_epochs_{10'000};
};

}  // namespace tutti

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
//
// A worker whose stream breaks has `grace` to come back: the connection may have broken, or the
// coordinator may have been suspended. If it does not, its ranks count as dead. They do so at once
// where a worker of the same host joins without the epoch: a host has one worker of a job.
//
// What must outlive the coordinator is handed out as states (take_changed()) and taken back by
// restore(). Workers of a restored epoch have `grace` to come back, too; but those that do not
// count as gone without a word: they may have left before, and links tell of deaths.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

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

  struct Options {
    Millis grace{0};           // 0: a worker whose stream breaks is dead at once.
    bool saves_first = false;  // An epoch starts when saved() says that its state is kept.
  };

  // Whether a pass is genuine. UNAVAILABLE: not now; anyone who shows it may ask again.
  using PassCheck = std::function<Status(const v1::Pass&)>;

  explicit Membership(PassCheck check_pass) : Membership(std::move(check_pass), Options()) {}
  Membership(PassCheck check_pass, Options options)
      : check_pass_(std::move(check_pass)), options_(options) {}

  // Before anything else: what an earlier coordinator remembered. INVALID_ARGUMENT: it makes no
  // sense, and is ignored.
  Status restore(const v1::JobState& state, TimePoint now);
  // The states of jobs that have changed since the last call.
  std::vector<v1::JobState> take_changed();
  // The states of all jobs that are remembered.
  v1::JobStates states() const;
  // The state is kept: the epoch may start.
  Messages saved(const v1::JobState& state);

  // An epoch's secret is that of the last join before it starts.
  Messages join(Worker worker, const v1::JoinRank& join, const std::string& secret, TimePoint now);
  Messages rank_gone(Worker worker, const v1::RankGone& gone);
  // A worker has reconnected and reports its newest epoch, which this coordinator may not know.
  Messages resume(Worker worker, const v1::Resume& resume);
  // The worker's stream has ended; its ranks count as gone if it does not come back in time.
  Messages worker_gone(Worker worker, TimePoint now);
  // Refuses the joins whose time is up, and gives up workers that have not come back. To be called
  // once `now` has reached next_deadline(). Where that is long ago, the coordinator was suspended,
  // and workers are given their time again. `obstacle`: what keeps epochs from being saved, if
  // anything does.
  Messages expire(TimePoint now, const std::string& obstacle = {});
  TimePoint next_deadline() const;  // TimePoint::max(): nobody is waited for.
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
    Worker worker = 0;  // 0: left, or its worker's stream broke.
    v1::RosterRank who;
    std::optional<TimePoint> awaited = {};  // Until when its worker may come back.
    bool was_here = true;                   // False: restored, and not resumed since.
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
    bool is_noted = false;                 // States have told that the epoch runs.
    std::optional<v1::JobState> proposed;  // Of an epoch that is complete and being saved.
  };

  Status check(const v1::JoinRank& join) const;
  // Whether the pass is genuine, and of the job's owner, for the job on this host.
  Status check_pass_for(const v1::Pass& pass, const std::string& job,
                        const std::string& host) const;
  Messages end_former_stream(Worker worker, const v1::JoinRank& join, TimePoint now);
  // Ends the running epoch if workers of `host` are awaited there.
  static void give_up_awaited(Job& job, const std::string& name, const std::string& host,
                              Messages& out);
  static Status check_rank_is_free(const Job& job, const v1::JoinRank& join);
  static Status check_host(const Job& job, const v1::JoinRank& join);
  static bool same_world_size(const Job& job, const v1::JoinRank& join);
  Job& find_or_create(const std::string& name, const v1::Pass& pass);
  // Called after every change of a job: starts the next epoch if it is complete, and erases the job
  // if it is empty, which invalidates references to it.
  void advance(const std::string& name, Messages& out);
  static void end_without_workers(Job& job);
  // An epoch that may have been kept, though it never ran, takes its number along.
  static void number_is_used(Job& job, uint32_t epoch);
  static std::set<Worker> workers_of(const RunningEpoch& running);
  static bool is_awaited(const Member& member) { return member.awaited.has_value(); }
  Messages expire_awaited(TimePoint now);
  // Where workers were awaited until now. Gives them their time again if that was long ago.
  std::set<std::string> late_hosts(Job& job, TimePoint now) const;
  static void send_to(Messages& out, const std::set<Worker>& workers,
                      const v1::CoordinatorMessage& message);
  static Message refusal(const PendingJoin& pending, const Status& status);
  static Status timeout_status(const Job& job, const std::string& obstacle);
  // Whether all ranks of the next epoch have joined.
  static bool is_complete(const Job& job);
  static v1::Roster next_roster(const Job& job, const std::string& name);
  // Starts the epoch that is complete, or proposes it to be saved first.
  void begin_epoch(Job& job, const std::string& name, Messages& out);
  static v1::JobState state_of(const Job& job, const std::string& name);
  void note_change(Job& job, const std::string& name);
  // For a job that has no ranks any more.
  void remember(Job& job, const std::string& name);

  // Refuses all pending joins and `late`, whose world size differs from theirs.
  static void refuse_world_size(Job& job, const PendingJoin& late, Messages& out);
  static void start_epoch(Job& job, const v1::Roster& roster, Messages& out);
  static v1::CoordinatorMessage aborted_message(const std::string& job, uint32_t epoch,
                                                const Status& cause);
  // Ends the running epoch and tells its workers, all but `except`.
  static void abort_epoch(Job& job, const std::string& name, const Status& cause, Worker except,
                          Messages& out);
  // The same, because the worker of these ranks is gone.
  static void abort_for(Job& job, const std::string& name, const std::vector<uint32_t>& ranks,
                        Worker except, Messages& out);
  static void end_by_death(Job& job);
  static bool is_running(const Job& job, const v1::Resume& resume);
  // Makes the epoch of a resume, which is newer than all known ones, the job's newest.
  void adopt_epoch(Job& job, Worker worker, const v1::Resume& resume, Messages& out);
  // Assigns the ranks of a resume to the worker's new stream.
  static void reattach(Job& job, Worker worker, const v1::Resume& resume);
  void remove_worker(Job& job, Worker worker, const std::string& name, TimePoint now,
                     Messages& out);

  PassCheck check_pass_;
  Options options_;
  std::map<std::string, Job> jobs_;
  std::map<std::string, v1::JobState> changed_;  // By owner and job.
  LastEpochs last_epochs_{10'000};
};

}  // namespace tutti

// The rules of one job. Its life:
//
//   joining    ranks wait for the next epoch, while one runs or not;
//   proposed   all of a world have joined and no epoch runs: the next one has a number and a
//              roster, which are to be saved first;
//   running    saved(), and the same ranks still wait: their workers have the roster. Else the
//              number is used up, and what waits goes on joining;
//   over       nobody is in the epoch: each rank left, or one died, or a worker is given up.
//
// advance() is the one place at which a job moves on by itself, to be called after each other call;
// it never ends the job's life: who keeps the job looks at is_over().
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/membership/last_epochs.h"
#include "daemon/membership/pending_joins.h"
#include "daemon/membership/running_epoch.h"

namespace tutti {

class Job {
 public:
  // Begun by the owner of this pass.
  Job(std::string name, const v1::Pass& pass);
  // As it was saved while an epoch ran, whose workers may come back until then.
  Job(const v1::JobState& saved, TimePoint until);

  const v1::Owner& owner() const { return owner_; }
  // The newest known, and how it ended; while it runs, how it ends if all its ranks leave.
  LastEpoch last() const { return last_; }
  void set_last(LastEpoch last) { last_ = last; }
  // No rank is in it.
  bool is_over() const { return !running_ && joins_.empty(); }
  v1::JobState state() const;
  TimePoint next_deadline() const;
  // What is known of its worker on the host, where ranks of the running epoch are there.
  std::optional<v1::WorkerReport> worker_on(const std::string& host) const;
  void advance(Effects& out);

  // ---- Joining ----

  // The other stream over which the worker of this join is in the job, or 0.
  WorkerStream former_stream(WorkerStream worker, const v1::JoinRank& join) const;
  // ALREADY_EXISTS, FAILED_PRECONDITION: the rank may not join.
  Status check(const v1::JoinRank& join) const;
  void join(const PendingJoin& pending, const std::string& secret, Effects& out);
  // The state is saved: the epoch that it proposes may start. Ranks may have given up, or come,
  // while it was being saved.
  void saved(const v1::JobState& state, Effects& out);
  void expire_joins(TimePoint now, const std::string& obstacle, Effects& out);

  // ---- Running ----

  // With epoch 0: its join is withdrawn.
  void rank_gone(WorkerStream worker, const v1::RankGone& gone);
  // `grace`: how long it may take to come back.
  void worker_gone(WorkerStream worker, TimePoint now, Millis grace, Effects& out);
  void resume(WorkerStream worker, const v1::Resume& resume, Effects& out);
  // Ends the running epoch if workers of the host are awaited there and were seen.
  void give_up(const std::string& host, Effects& out);
  void give_up_late(TimePoint now, Millis grace, Effects& out);
  void set_strategy(const std::string& strategy, Effects& out);

 private:
  void propose(const v1::Roster& roster, Effects& out);
  v1::Roster next_roster() const;
  void start(const v1::Roster& roster, Effects& out);
  void end_without_workers();
  void end_by_death();
  // An epoch that may have been saved, though it never ran, takes its number along.
  void use_number(uint32_t epoch);
  void save(Effects& out);
  Status timeout_status(const std::string& obstacle) const;
  // Ends the running epoch, and its workers get the cause, all but `except`.
  void abort(const Status& cause, WorkerStream except, Effects& out);
  // The same, because the worker of these ranks is gone.
  void abort_for(const std::vector<uint32_t>& ranks, WorkerStream except, Effects& out);
  bool is_running(const v1::Resume& resume) const;
  // Makes the epoch of a resume, which is newer than all known ones, the job's newest.
  void resume_newer(WorkerStream worker, const v1::Resume& resume, Effects& out);
  void abort_resumed(WorkerStream worker, const v1::Resume& resume, Effects& out) const;

  std::string name_;
  v1::Owner owner_;  // Who began it.
  LastEpoch last_;
  std::string strategy_;
  PendingJoins joins_;
  std::set<uint32_t> timed_out_;  // Ranks that have joined the next epoch and timed out since.
  std::string secret_;            // For the next epoch.
  std::optional<v1::JobState> proposed_;  // Is being saved.
  std::optional<RunningEpoch> running_;
  bool runs_in_state_ = false;  // What is saved says that an epoch runs.
};

v1::CoordinatorMessage aborted_message(const std::string& job, uint32_t epoch, const Status& cause);

}  // namespace tutti

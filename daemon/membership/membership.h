// The coordinator's rules: which ranks form which epoch of a job. A pure state machine: what
// workers say, random secrets and the time go in; the states to save and the messages to send come
// out, as values. No IO, threads or clock, so that every rule can be tested alone, and all of them
// together in simulated time (tests/membership/). The rules of one job are in job.h.
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
// What must outlive the coordinator is handed out as states, to be saved before messages are sent,
// and taken back by restore(). An epoch starts when saved() says that its state is. Workers of a
// restored epoch have `grace` to come back, too; but those that do not count as gone without a
// word: they may have left before, and links tell of deaths.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/base/loop.h"
#include "daemon/base/status.h"
#include "daemon/membership/effects.h"
#include "daemon/membership/job.h"
#include "daemon/membership/last_epochs.h"
#include "proto/mesh.pb.h"

namespace tutti {

class Membership {
 public:
  using Worker = WorkerStream;
  // Whether a pass is genuine. UNAVAILABLE: not now; anyone who shows it may ask again.
  using PassCheck = std::function<Status(const v1::Pass&)>;

  // `grace` 0: a worker whose stream breaks is dead at once.
  explicit Membership(PassCheck check_pass, Millis grace = Millis(0))
      : check_pass_(std::move(check_pass)), grace_(grace) {}

  // Before anything else: what an earlier coordinator saved. INVALID_ARGUMENT: it makes no sense,
  // and is ignored.
  Status restore(const v1::JobState& state, TimePoint now);
  // The state is saved.
  Effects saved(const v1::JobState& state);

  // An epoch's secret is that of the last join before it starts.
  Effects join(Worker worker, const v1::JoinRank& join, const std::string& secret, TimePoint now);
  Effects rank_gone(Worker worker, const v1::RankGone& gone);
  // A worker has reconnected and reports its newest epoch, which this coordinator may not know.
  Effects resume(Worker worker, const v1::Resume& resume);
  // The worker's stream has ended; its ranks count as gone if it does not come back in time.
  Effects worker_gone(Worker worker, TimePoint now);
  // Refuses the joins whose time is up, and gives up workers that have not come back. To be called
  // once `now` has reached next_deadline(). Where that is long ago, the coordinator was suspended,
  // and workers are given their time again. `obstacle`: what prevents states from being saved, if
  // anything does.
  Effects expire(TimePoint now, const std::string& obstacle = {});
  TimePoint next_deadline() const;  // TimePoint::max(): nobody is waited for.
  // NOT_FOUND: no rank is in the job, or it is not `owner`'s, unless that is null. `strategy` is
  // not checked.
  Result<Effects> set_strategy(const std::string& job, const std::string& strategy,
                               const v1::Owner* owner = nullptr);

  // The host's workers in running epochs, with their ranks there, as they joined.
  std::vector<v1::WorkerReport> workers_on(const std::string& host) const;
  size_t jobs() const { return jobs_.size(); }  // Jobs that have ranks.

 private:
  using Jobs = std::map<std::string, Job>;  // By name.

  Status check(const v1::JoinRank& join) const;
  // Whether the pass is genuine, and of the job's owner, for the job on this host.
  Status check_pass_for(const v1::Pass& pass, const std::string& job,
                        const std::string& host) const;
  // Whatever a join needs before its job sees it: the worker has one stream, and is not awaited.
  void end_former_stream(Worker worker, const v1::JoinRank& join, TimePoint now, Effects& out);
  void remove_worker(Worker worker, TimePoint now, Effects& out);
  // `pass` is genuine.
  Jobs::iterator find_or_create(const std::string& name, const v1::Pass& pass);
  // Ends each call that concerns a job: lets it move on, and forgets it if it is over.
  void settle(Jobs::iterator job, Effects& out);
  void forget(Jobs::iterator job, Effects& out);

  PassCheck check_pass_;
  Millis grace_;
  Jobs jobs_;
  LastEpochs last_epochs_{10'000};  // Of jobs that are over.
};

}  // namespace tutti

#include "daemon/membership/job.h"

#include <algorithm>
#include <utility>

#include "daemon/base/credentials.h"
#include "daemon/membership/roster_message.h"

namespace tutti {

Job::Job(std::string name, const v1::Pass& pass) : name_(std::move(name)) {
  owner_.set_uid(pass.uid());
  owner_.set_subject(pass.subject());
}

Job::Job(const v1::JobState& saved, TimePoint until)
    : name_(saved.job()),
      owner_(saved.owner()),
      last_{saved.epoch(), static_cast<EpochEnd>(saved.end())},
      strategy_(saved.roster().strategy()),
      running_(RunningEpoch(saved.roster(), until)),
      runs_in_state_(true) {}

v1::JobState Job::state() const {
  v1::JobState state;
  state.set_job(name_);
  *state.mutable_owner() = owner_;
  state.set_epoch(last_.number);
  state.set_end(static_cast<uint32_t>(last_.end));
  if (!running_) return state;
  v1::Roster& roster = *state.mutable_roster();
  roster.set_job(name_);
  roster.set_epoch(running_->number);
  roster.set_secret(running_->secret);
  roster.set_strategy(strategy_);
  for (const RunningEpoch::Member& member : running_->members) *roster.add_ranks() = member.who;
  return state;
}

void Job::save(Effects& out) {
  runs_in_state_ = running_.has_value();
  out.save_state(state());
}

TimePoint Job::next_deadline() const {
  const TimePoint soonest = joins_.next_deadline();
  return running_ ? std::min(soonest, running_->next_deadline()) : soonest;
}

std::optional<v1::WorkerReport> Job::worker_on(const std::string& host) const {
  if (!running_) return {};
  v1::WorkerReport worker;
  for (const RunningEpoch::Member& member : running_->members) {
    if (member.who.host() != host || (member.worker == 0 && !member.awaited)) continue;
    v1::RankReport& rank = *worker.add_ranks();
    rank.set_rank(member.who.rank());
    rank.set_pid(member.who.pid());
    rank.set_epoch(running_->number);
  }
  if (worker.ranks_size() == 0) return {};
  worker.set_job(name_);
  worker.set_uid(owner_.uid());
  worker.mutable_pass()->set_uid(owner_.uid());
  worker.mutable_pass()->set_subject(owner_.subject());
  worker.set_world_size(static_cast<uint32_t>(running_->members.size()));
  worker.set_epoch(running_->number);
  worker.set_strategy(strategy_.empty() ? "auto" : strategy_);
  return worker;
}

void Job::advance(Effects& out) {
  if (running_ && running_->is_left()) end_without_workers();
  if (!running_ && runs_in_state_) save(out);
  if (joins_.empty()) timed_out_.clear();
  if (joins_.is_complete() && !running_ && !proposed_) propose(next_roster(), out);
  if (is_over() && proposed_) use_number(proposed_->epoch());  // May have been saved.
}

// Workers that have not come back since a restart may do so later, as where their agent is down.
void Job::end_without_workers() {
  if (running_->has_unseen() && last_ == LastEpoch{running_->number, EpochEnd::over})
    last_.end = EpochEnd::unknown;
  running_.reset();
}

void Job::use_number(uint32_t epoch) {
  if (epoch > last_.number) last_ = {epoch, EpochEnd::over};
}

// ---- Joining ----

WorkerStream Job::former_stream(WorkerStream worker, const v1::JoinRank& join) const {
  WorkerStream former = 0;
  const auto compare = [&](WorkerStream other, const auto& who) {
    if (other != 0 && other != worker && who.host() == join.host() &&
        who.address() == join.address())
      former = other;
  };
  for (const auto& [rank, pending] : joins_) compare(pending.worker, pending.join);
  if (running_)
    for (const RunningEpoch::Member& member : running_->members) compare(member.worker, member.who);
  return former;
}

Status Job::check(const v1::JoinRank& join) const {
  if (running_ && join.rank() < running_->members.size()) {
    const RunningEpoch::Member& member = running_->members[join.rank()];
    if (member.worker != 0)
      return already_exists("rank " + std::to_string(join.rank()) + " of " + quoted(name_) +
                                " runs in epoch " + std::to_string(running_->number) + " " +
                                location_of(member.who),
                            {static_cast<int>(join.rank()), member.who.host()});
  }
  return joins_.fits(join) ? joins_.check(join) : Status();
}

void Job::join(const PendingJoin& pending, const std::string& secret, Effects& out) {
  const v1::JoinRank& join = pending.join;
  if (join.last_epoch() > last_.number) last_ = {join.last_epoch(), EpochEnd::unknown};
  if (!joins_.fits(join)) return joins_.refuse_world_size(pending, out);
  joins_.add(pending);
  timed_out_.erase(join.rank());
  secret_ = secret;
}

v1::Roster Job::next_roster() const {
  v1::Roster roster;
  roster.set_job(name_);
  roster.set_epoch(last_.number + 1);
  roster.set_secret(secret_);
  roster.set_strategy(strategy_);
  for (const auto& [rank, pending] : joins_) {
    v1::RosterRank& who = *roster.add_ranks();
    who.set_rank(rank);
    who.set_pid(pending.join.pid());
    who.set_host(pending.join.host());
    who.set_address(pending.join.address());
  }
  return roster;
}

void Job::propose(const v1::Roster& roster, Effects& out) {
  proposed_ = state();
  proposed_->set_epoch(roster.epoch());
  proposed_->set_end(static_cast<uint32_t>(EpochEnd::over));  // Once it runs no longer.
  *proposed_->mutable_roster() = roster;
  out.save_state(*proposed_);
}

void Job::saved(const v1::JobState& state, Effects& out) {
  if (!proposed_ || proposed_->epoch() != state.epoch() || !is_owner(owner_, state.owner())) return;
  proposed_.reset();
  if (!joins_.is_complete() || running_) {
    use_number(state.epoch());
    return save(out);
  }
  const v1::Roster roster = next_roster();
  if (roster.SerializeAsString() == state.roster().SerializeAsString())
    start(roster, out);
  else
    propose(roster, out);
}

void Job::start(const v1::Roster& roster, Effects& out) {
  last_ = {roster.epoch(), EpochEnd::over};
  running_ = RunningEpoch(roster, {});
  for (const auto& [rank, pending] : joins_) {
    RunningEpoch::Member& member = running_->members[rank];
    member = {pending.worker, member.who};
  }
  joins_.clear();
  timed_out_.clear();
  runs_in_state_ = true;
  v1::CoordinatorMessage message;
  *message.mutable_roster() = roster;
  out.send_to(running_->workers(), message);
}

void Job::expire_joins(TimePoint now, const std::string& obstacle, Effects& out) {
  if (joins_.next_deadline() > now) return;
  timed_out_.merge(joins_.expire(now, timeout_status(obstacle), out));
}

Status Job::timeout_status(const std::string& obstacle) const {
  std::vector<uint32_t> missing;
  std::ranges::set_difference(joins_.missing(), timed_out_, std::back_inserter(missing));
  const std::string of = " of " + std::to_string(joins_.world_size());
  if (!missing.empty())
    return deadline_exceeded(quoted(name_) + ": " + list_ranks(missing) + of +
                                 (missing.size() == 1 ? " has" : " have") + " not joined",
                             {.rank = static_cast<int>(missing[0]), .host = {}});
  if (!timed_out_.empty()) {
    const std::vector<uint32_t> timed_out(timed_out_.begin(), timed_out_.end());
    return deadline_exceeded(
        quoted(name_) + ": " + list_ranks(timed_out) + of + " joined, but waited less long",
        {.rank = static_cast<int>(timed_out.at(0)), .host = {}});
  }
  if (running_)
    return deadline_exceeded(quoted(name_) + ": all of the next epoch have joined, but epoch " +
                             std::to_string(running_->number) + " still runs");
  return unavailable(quoted(name_) + ": all ranks have joined, but the epoch cannot start: " +
                     (obstacle.empty() ? "its state is still being saved" : obstacle));
}

// ---- Running ----

void Job::rank_gone(WorkerStream worker, const v1::RankGone& gone) {
  if (gone.epoch() == 0) joins_.remove(worker, gone.rank());
  if (!running_ || running_->number != gone.epoch() || gone.rank() >= running_->members.size())
    return;
  RunningEpoch::Member& member = running_->members[gone.rank()];
  if (member.worker != worker) return;
  member.worker = 0;
  // The job's leader tells the workers of a death, in the order of their operations: those that the
  // dead rank had contributed to may still complete. Here the epoch only ends.
  if (!read_status(gone.cause()).ok()) end_by_death();
}

void Job::end_by_death() {
  if (running_->number == last_.number) last_.end = EpochEnd::death;
  running_.reset();
}

void Job::worker_gone(WorkerStream worker, TimePoint now, Millis grace, Effects& out) {
  joins_.remove(worker);
  if (!running_) return;
  const std::vector<uint32_t> ranks = running_->ranks_of(worker);
  if (ranks.empty()) return;
  if (grace.count() == 0) return abort_for(ranks, worker, out);
  running_->await(ranks, now + grace);
}

void Job::give_up(const std::string& host, Effects& out) {
  if (!running_) return;
  std::vector<uint32_t> ranks;
  bool was_here = false;
  for (uint32_t rank = 0; rank < running_->members.size(); ++rank) {
    RunningEpoch::Member& member = running_->members[rank];
    if (!member.awaited || member.who.host() != host) continue;
    ranks.push_back(rank);
    was_here |= member.was_here;
    member.awaited.reset();
  }
  if (was_here) abort_for(ranks, 0, out);
}

// By host, because a worker is named with all of its ranks.
void Job::give_up_late(TimePoint now, Millis grace, Effects& out) {
  if (!running_) return;
  for (const std::string& host : running_->late_hosts(now, grace)) give_up(host, out);
}

void Job::abort_for(const std::vector<uint32_t>& ranks, WorkerStream except, Effects& out) {
  const std::string host = running_->members[ranks[0]].who.host();
  abort(unavailable("the worker of host " + host + " (" + list_ranks(ranks) + ") is gone",
                    {.rank = -1, .host = host}),
        except, out);
}

void Job::abort(const Status& cause, WorkerStream except, Effects& out) {
  std::set<WorkerStream> workers = running_->workers();
  workers.erase(except);
  out.send_to(workers, aborted_message(name_, running_->number, cause));
  running_.reset();
}

void Job::set_strategy(const std::string& strategy, Effects& out) {
  strategy_ = strategy;
  std::set<WorkerStream> workers;
  if (running_) {
    save(out);
    workers = running_->workers();
  }
  for (const auto& [rank, pending] : joins_) workers.insert(pending.worker);
  v1::CoordinatorMessage message;
  message.mutable_strategy()->set_job(name_);
  message.mutable_strategy()->set_strategy(strategy);
  out.send_to(workers, message);
}

// ---- Workers that reconnect ----

void Job::resume(WorkerStream worker, const v1::Resume& resume, Effects& out) {
  const LastEpoch heard_of{resume.epoch(), EpochEnd::unknown};
  if (resume.epoch() > last_.number || last_ == heard_of) resume_newer(worker, resume, out);
  const bool broke = last_ == LastEpoch{resume.epoch(), EpochEnd::death};
  if (is_running(resume)) {
    if (resume.has_broken()) return end_by_death();
    running_->reattach(worker, resume);
  } else if (!resume.ranks().empty() && !resume.has_broken() && !broke) {
    abort_resumed(worker, resume, out);
  }
}

// Compares secrets too: a coordinator that lost its state may have reused the number.
bool Job::is_running(const v1::Resume& resume) const {
  return running_ && running_->number == resume.epoch() &&
         same_token(running_->secret, resume.roster().secret());
}

void Job::resume_newer(WorkerStream worker, const v1::Resume& resume, Effects& out) {
  last_ = {resume.epoch(), resume.has_broken() ? EpochEnd::death : EpochEnd::unknown};
  if (resume.ranks().empty() || resume.has_broken()) return;
  last_.end = EpochEnd::over;  // Takes effect when it no longer runs.
  if (running_)
    abort(aborted("epoch " + std::to_string(resume.epoch()) + " has taken over"), worker, out);
  strategy_ = resume.roster().strategy();
  v1::Roster roster = resume.roster();
  roster.set_epoch(resume.epoch());
  running_ = RunningEpoch(roster, {});
  save(out);
}

void Job::abort_resumed(WorkerStream worker, const v1::Resume& resume, Effects& out) const {
  const Status cause =
      unavailable("epoch " + std::to_string(resume.epoch()) + " of " + quoted(name_) +
                  " was ended while this worker was out of the coordinator's reach; join again");
  out.send_to({worker}, aborted_message(name_, resume.epoch(), cause));
}

v1::CoordinatorMessage aborted_message(const std::string& job, uint32_t epoch,
                                       const Status& cause) {
  v1::CoordinatorMessage message;
  message.mutable_aborted()->set_job(job);
  message.mutable_aborted()->set_epoch(epoch);
  write_status(cause, *message.mutable_aborted()->mutable_cause());
  return message;
}

}  // namespace tutti

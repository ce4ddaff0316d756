#include "daemon/membership/membership.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/base/job_check.h"
#include "daemon/membership/roster_message.h"
#include "proto/segment.h"

namespace tutti {
namespace {

constexpr uint32_t kTimeoutDefaultMs = 30'000;
constexpr size_t kNameShown = 128;  // Of a job's name that may be anything.

// `Who` is an Owner or a Pass.
template <class Who>
std::string name_of(const Who& who) {
  const std::string user = "user " + std::to_string(who.uid());
  return who.subject().empty() ? user : user + " (subject " + who.subject() + ")";
}

bool is_all_short(const v1::Resume& resume) {
  const v1::Roster& roster = resume.roster();
  return std::ranges::all_of(roster.ranks(), [](const auto& rank) { return is_short(rank); }) &&
         roster.secret().size() <= kAddressBytesMax &&
         roster.strategy().size() <= kAddressBytesMax && resume.host().size() <= kHostBytesMax;
}

bool is_valid(const v1::Resume& resume) {
  if (!is_all_short(resume)) return false;
  const auto& ranks = resume.ranks();
  const int world_size = resume.roster().ranks_size();
  return resume.epoch() != 0 && resume.epoch() <= kEpochMax && from_message(resume.roster()).ok() &&
         check_job(resume.job(), 0, static_cast<uint32_t>(world_size)).ok() &&
         std::ranges::all_of(ranks, [&](uint32_t r) { return r < uint32_t(world_size); });
}

bool is_valid(const v1::JobState& state) {
  const v1::Roster& roster = state.roster();
  const bool known_end = state.end() <= static_cast<uint32_t>(EpochEnd::death);
  if (!check_job(state.job(), 0, 1).ok() || state.epoch() == 0 || !known_end) return false;
  if (!state.has_roster()) return true;
  return roster.epoch() != 0 && roster.job() == state.job() && from_message(roster).ok() &&
         std::ranges::all_of(roster.ranks(), [](const auto& rank) { return is_short(rank); });
}

// With which a store forgets the job. `key` is one of key_of(): only a subject may contain line
// ends.
v1::JobState forgotten_state(const std::string& key) {
  const size_t first = key.find('\n');
  const size_t second = key.rfind('\n');
  v1::JobState state;
  state.mutable_owner()->set_uid(static_cast<uint32_t>(std::stoul(key.substr(0, first))));
  state.mutable_owner()->set_subject(key.substr(first + 1, second - first - 1));
  state.set_job(key.substr(second + 1));
  return state;
}

}  // namespace

Status Membership::restore(const v1::JobState& state, TimePoint now) {
  if (!is_valid(state))
    return invalid_argument("what is remembered of " + quoted(state.job().substr(0, kNameShown)) +
                            " makes no sense");
  if (state.has_roster() && !jobs_.contains(state.job()))
    jobs_.emplace(state.job(), Job(state, now + grace_));
  else
    last_epochs_.add(key_of(state.owner(), state.job()),
                     {state.epoch(), static_cast<EpochEnd>(state.end())});
  return {};
}

Effects Membership::saved(const v1::JobState& state) {
  Effects out;
  const auto job = jobs_.find(state.job());
  if (job == jobs_.end()) return out;
  job->second.saved(state, out);
  settle(job, out);
  return out;
}

void Membership::settle(Jobs::iterator job, Effects& out) {
  job->second.advance(out);
  if (job->second.is_over()) forget(job, out);
}

void Membership::forget(Jobs::iterator job, Effects& out) {
  const auto& [name, over] = *job;
  if (over.last().number != 0) {
    out.save_state(over.state());
    const std::string forgotten = last_epochs_.add(key_of(over.owner(), name), over.last());
    if (!forgotten.empty()) out.save_state(forgotten_state(forgotten));
  }
  jobs_.erase(job);
}

// ---- Joining ----

Effects Membership::join(Worker worker, const v1::JoinRank& join, const std::string& secret,
                         TimePoint now) {
  const uint32_t timeout_ms = join.timeout_ms() == 0 ? kTimeoutDefaultMs : join.timeout_ms();
  const PendingJoin pending{worker, join, now + Millis(timeout_ms)};
  Effects out;
  Status status = check(join);
  if (status.ok()) end_former_stream(worker, join, now, out);
  const auto known = jobs_.find(join.job());
  if (status.ok() && known != jobs_.end()) status = known->second.check(join);
  if (!status.ok()) {
    refuse(pending, status, out);
    out.send.back().body.mutable_refused()->set_again(status.code() == Code::unavailable);
    return out;
  }
  const auto job = find_or_create(join.job(), join.pass());
  job->second.join(pending, secret, out);
  settle(job, out);
  return out;
}

Status Membership::check(const v1::JoinRank& join) const {
  if (join.version() != kProtocolVersion)
    return failed_precondition("host " + join.host() + " speaks protocol version " +
                                   std::to_string(join.version()) + ", the coordinator version " +
                                   std::to_string(kProtocolVersion) +
                                   "; install the same release on every host",
                               {.host = join.host()});
  if (join.last_epoch() > kEpochMax)
    return invalid_argument("rank " + std::to_string(join.rank()) + " of " + quoted(join.job()) +
                            " " + location_of(join) + " claims to know epoch " +
                            std::to_string(join.last_epoch()) + "; there is none beyond " +
                            std::to_string(kEpochMax));
  if (!is_short(join))
    return invalid_argument("a worker of job \"" + join.job().substr(0, kHostBytesMax) +
                            "\" says a host or address that is too long");
  const Status valid = check_job(join.job(), join.rank(), join.world_size());
  return valid.ok() ? check_pass_for(join.pass(), join.job(), join.host()) : valid;
}

Status Membership::check_pass_for(const v1::Pass& pass, const std::string& job,
                                  const std::string& host) const {
  if (Status known = check_pass_(pass); !known.ok()) return known;
  if (pass.job() != job || pass.host() != host)
    return permission_denied("a pass for " + quoted(pass.job()) + " on host " + pass.host() +
                             " was shown for " + quoted(job) + " on host " + host);
  const auto known = jobs_.find(job);
  if (known == jobs_.end() || is_owner(known->second.owner(), pass)) return {};
  return permission_denied(quoted(job) + " belongs to " + name_of(known->second.owner()) +
                           ", and " + name_of(pass) + " on host " + host +
                           " may not join it; choose another job name");
}

// A worker whose stream broke reconnects, and may join over the new stream before the end of the
// old one is noticed here. Whatever the old stream had, the worker has resumed or dropped by then.
void Membership::end_former_stream(Worker worker, const v1::JoinRank& join, TimePoint now,
                                   Effects& out) {
  const auto known = jobs_.find(join.job());
  if (known == jobs_.end()) return;
  if (const Worker former = known->second.former_stream(worker, join); former != 0)
    remove_worker(former, now, out);
  const auto job = jobs_.find(join.job());  // May be gone by now.
  if (job == jobs_.end()) return;
  job->second.give_up(join.host(), out);
  settle(job, out);
}

Membership::Jobs::iterator Membership::find_or_create(const std::string& name,
                                                      const v1::Pass& pass) {
  const auto [entry, is_new] = jobs_.try_emplace(name, name, pass);
  Job& job = entry->second;
  if (is_new) job.set_last(last_epochs_.take(key_of(job.owner(), name)));
  return entry;
}

// ---- Workers and ranks that go, and come back ----

Effects Membership::rank_gone(Worker worker, const v1::RankGone& gone) {
  Effects out;
  const auto job = jobs_.find(gone.job());
  if (job == jobs_.end()) return out;
  job->second.rank_gone(worker, gone);
  settle(job, out);
  return out;
}

Effects Membership::worker_gone(Worker worker, TimePoint now) {
  Effects out;
  remove_worker(worker, now, out);
  return out;
}

void Membership::remove_worker(Worker worker, TimePoint now, Effects& out) {
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    const auto job = next++;
    job->second.worker_gone(worker, now, grace_, out);
    settle(job, out);
  }
}

Effects Membership::resume(Worker worker, const v1::Resume& resume) {
  Effects out;
  if (!is_valid(resume)) return out;
  const std::string& name = resume.job();
  if (const Status shown = check_pass_for(resume.pass(), name, resume.host()); !shown.ok()) {
    out.send_to({worker}, aborted_message(name, resume.epoch(), shown));
    return out;
  }
  const auto job = find_or_create(name, resume.pass());
  job->second.resume(worker, resume, out);
  settle(job, out);
  return out;
}

// ---- Time ----

Effects Membership::expire(TimePoint now, const std::string& obstacle) {
  Effects out;
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    const auto job = next++;
    job->second.give_up_late(now, grace_, out);
    job->second.advance(out);
    job->second.expire_joins(now, obstacle, out);
    settle(job, out);
  }
  return out;
}

TimePoint Membership::next_deadline() const {
  TimePoint soonest = TimePoint::max();
  for (const auto& [name, job] : jobs_) soonest = std::min(soonest, job.next_deadline());
  return soonest;
}

std::vector<v1::WorkerReport> Membership::workers_on(const std::string& host) const {
  std::vector<v1::WorkerReport> workers;
  for (const auto& [name, job] : jobs_)
    if (std::optional<v1::WorkerReport> worker = job.worker_on(host))
      workers.push_back(*std::move(worker));
  return workers;
}

Result<Effects> Membership::set_strategy(const std::string& job, const std::string& strategy,
                                         const v1::Owner* owner) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end() || (owner != nullptr && !is_owner(found->second.owner(), *owner)))
    return not_found("there is no " + quoted(job) + "; `tutti status` lists the jobs");
  Effects out;
  found->second.set_strategy(strategy, out);
  return out;
}

}  // namespace tutti

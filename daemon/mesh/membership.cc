#include "daemon/mesh/membership.h"

#include <algorithm>
#include <cctype>

#include "daemon/mesh/membership_values.h"
#include "daemon/mesh/mesh.h"
#include "daemon/mesh/roster_message.h"
#include "proto/segment.h"

namespace tutti {
namespace {

constexpr uint32_t kTimeoutDefaultMs = 30'000;
constexpr size_t kRanksNamedMax = 4;
constexpr Millis kSuspended{1'000};  // A deadline seen so late was slept through.

// "(host b, pid 4711)". `Who` is a JoinRank or a RosterRank.
template <class Who>
std::string location_of(const Who& who) {
  return "(host " + who.host() + ", pid " + std::to_string(who.pid()) + ")";
}

std::string describe(const v1::JoinRank& join) {
  return "rank " + std::to_string(join.rank()) + " " + location_of(join);
}

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

}  // namespace

Membership::Messages Membership::join(Worker worker, const v1::JoinRank& join,
                                      const std::string& secret, TimePoint now) {
  const uint32_t timeout_ms = join.timeout_ms() == 0 ? kTimeoutDefaultMs : join.timeout_ms();
  const PendingJoin pending{worker, join, now + Millis(timeout_ms)};
  Status status = check(join);
  Messages out;
  if (status.ok()) out = end_former_stream(worker, join, now);
  const auto known = jobs_.find(join.job());
  if (status.ok() && known != jobs_.end()) status = check_rank_is_free(known->second, join);
  if (!status.ok()) {
    out.push_back(refusal(pending, status));
    out.back().body.mutable_refused()->set_again(status.code() == Code::unavailable);
    return out;
  }
  Job& job = find_or_create(join.job(), join.pass());
  if (join.last_epoch() > job.last.number) job.last = {join.last_epoch(), EpochEnd::unknown};
  if (same_world_size(job, join)) {
    job.pending_joins.emplace(join.rank(), pending);
    job.timed_out.erase(join.rank());
    job.secret = secret;
  } else {
    refuse_world_size(job, pending, out);
  }
  advance(join.job(), out);
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
  if (known == jobs_.end() || is_owner(known->second.owner, pass)) return {};
  return permission_denied(quoted(job) + " belongs to " + name_of(known->second.owner) + ", and " +
                           name_of(pass) + " on host " + host +
                           " may not join it; choose another job name");
}

// A worker whose stream broke reconnects, and may join over the new stream before the end of the
// old one is noticed here. Whatever the old stream had, the worker has resumed or dropped by then.
Membership::Messages Membership::end_former_stream(Worker worker, const v1::JoinRank& join,
                                                   TimePoint now) {
  const auto known = jobs_.find(join.job());
  if (known == jobs_.end()) return {};
  Worker former = 0;
  const auto compare = [&](Worker other, const auto& who) {
    if (other != 0 && other != worker && who.host() == join.host() &&
        who.address() == join.address())
      former = other;
  };
  for (const auto& [rank, pending] : known->second.pending_joins)
    compare(pending.worker, pending.join);
  if (known->second.running)
    for (const Member& member : known->second.running->members) compare(member.worker, member.who);
  Messages out;
  if (former != 0) out = worker_gone(former, now);
  const auto job = jobs_.find(join.job());  // May be gone by now.
  if (job == jobs_.end()) return out;
  give_up_awaited(job->second, join.job(), join.host(), out);
  advance(join.job(), out);
  return out;
}

void Membership::give_up_awaited(Job& job, const std::string& name, const std::string& host,
                                 Messages& out) {
  if (!job.running) return;
  std::vector<uint32_t> ranks;
  bool was_here = false;
  std::vector<Member>& members = job.running->members;
  for (uint32_t rank = 0; rank < members.size(); ++rank) {
    if (!is_awaited(members[rank]) || members[rank].who.host() != host) continue;
    ranks.push_back(rank);
    was_here |= members[rank].was_here;
    members[rank].awaited.reset();
  }
  if (was_here) abort_for(job, name, ranks, 0, out);
}

Status Membership::check_rank_is_free(const Job& job, const v1::JoinRank& join) {
  const std::string rank = "rank " + std::to_string(join.rank()) + " of " + quoted(join.job());
  const int culprit = static_cast<int>(join.rank());
  if (job.running && join.rank() < job.running->members.size()) {
    const Member& member = job.running->members[join.rank()];
    if (member.worker != 0)
      return already_exists(rank + " runs in epoch " + std::to_string(job.running->epoch) + " " +
                                location_of(member.who),
                            {culprit, member.who.host()});
  }
  if (!same_world_size(job, join)) return {};
  const auto holder = job.pending_joins.find(join.rank());
  if (holder != job.pending_joins.end())
    return already_exists(rank + " has joined already " + location_of(holder->second.join),
                          {culprit, holder->second.join.host()});
  return check_host(job, join);
}

Status Membership::check_host(const Job& job, const v1::JoinRank& join) {
  for (const auto& [rank, pending] : job.pending_joins)
    if (pending.join.host() == join.host() && pending.join.address() != join.address())
      return failed_precondition("two workers of " + quoted(join.job()) + " call their host " +
                                     join.host() + " (" + pending.join.address() + " and " +
                                     join.address() + "); give each agent its own name with --host",
                                 {static_cast<int>(join.rank()), join.host()});
  return {};
}

// All pending joins have the same world size, so comparing with one is enough.
bool Membership::same_world_size(const Job& job, const v1::JoinRank& join) {
  return job.pending_joins.empty() ||
         job.pending_joins.begin()->second.join.world_size() == join.world_size();
}

void Membership::refuse_world_size(Job& job, const PendingJoin& late, Messages& out) {
  const uint32_t size = job.pending_joins.begin()->second.join.world_size();
  std::string waiting;
  size_t named = 0;
  for (const auto& [rank, pending] : job.pending_joins)
    if (named++ < kRanksNamedMax) waiting += (waiting.empty() ? "" : ", ") + describe(pending.join);
  if (named > kRanksNamedMax) waiting += " and " + std::to_string(named - kRanksNamedMax) + " more";
  const Status status = failed_precondition(
      quoted(late.join.job()) + ": the ranks disagree on the world size: it is " +
          std::to_string(size) + " for " + waiting + "; it is " +
          std::to_string(late.join.world_size()) + " for " + describe(late.join) +
          "; start all with the same",
      {static_cast<int>(late.join.rank()), late.join.host()});
  for (const auto& [rank, pending] : job.pending_joins) out.push_back(refusal(pending, status));
  out.push_back(refusal(late, status));
  job.pending_joins.clear();
}

// `pass` is genuine.
Membership::Job& Membership::find_or_create(const std::string& name, const v1::Pass& pass) {
  const auto [entry, is_new] = jobs_.try_emplace(name);
  Job& job = entry->second;
  if (!is_new) return job;
  job.owner.set_uid(pass.uid());
  job.owner.set_subject(pass.subject());
  job.last = last_epochs_.take(key_of(job.owner, name));
  return job;
}

void Membership::advance(const std::string& name, Messages& out) {
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  if (job.running && workers_of(*job.running).empty() &&
      std::ranges::none_of(job.running->members, is_awaited))
    end_without_workers(job);
  if (!job.running && std::exchange(job.is_noted, false)) note_change(job, name);
  if (job.pending_joins.empty()) job.timed_out.clear();
  if (is_complete(job) && !job.running) begin_epoch(job, name, out);
  if (job.running || !job.pending_joins.empty()) return;
  if (job.proposed) number_is_used(job, job.proposed->epoch());  // May have been saved.
  if (job.last.number != 0) remember(job, name);
  jobs_.erase(found);
}

// Workers that have not come back since a restart may do so later, as where their agent is down.
void Membership::end_without_workers(Job& job) {
  const bool unseen = std::ranges::any_of(job.running->members,
                                          [](const Member& member) { return !member.was_here; });
  if (unseen && job.last == LastEpoch{job.running->epoch, EpochEnd::over})
    job.last.end = EpochEnd::unknown;
  job.running.reset();
}

void Membership::number_is_used(Job& job, uint32_t epoch) {
  if (epoch > job.last.number) job.last = {epoch, EpochEnd::over};
}

bool Membership::is_complete(const Job& job) {
  return !job.pending_joins.empty() &&
         job.pending_joins.size() == job.pending_joins.begin()->second.join.world_size();
}

void Membership::begin_epoch(Job& job, const std::string& name, Messages& out) {
  if (job.proposed) return;
  const v1::Roster roster = next_roster(job, name);
  if (!options_.saves_first) {
    start_epoch(job, roster, out);
    return note_change(job, name);
  }
  job.proposed = state_of(job, name);
  job.proposed->set_epoch(roster.epoch());
  job.proposed->set_end(static_cast<uint32_t>(EpochEnd::over));  // Once it runs no longer.
  *job.proposed->mutable_roster() = roster;
  changed_[key_of(job.owner, name)] = *job.proposed;
}

std::set<Membership::Worker> Membership::workers_of(const RunningEpoch& running) {
  std::set<Worker> workers;
  for (const Member& member : running.members)
    if (member.worker != 0) workers.insert(member.worker);
  return workers;
}

void Membership::send_to(Messages& out, const std::set<Worker>& workers,
                         const v1::CoordinatorMessage& message) {
  for (const Worker worker : workers) out.push_back({worker, message});
}

Membership::Message Membership::refusal(const PendingJoin& pending, const Status& status) {
  Message refusal{.to = pending.worker, .body = {}};
  v1::JoinRefused& refused = *refusal.body.mutable_refused();
  refused.set_job(pending.join.job());
  refused.set_rank(pending.join.rank());
  refused.set_number(pending.join.number());
  write_status(status, *refused.mutable_status());
  return refusal;
}

v1::Roster Membership::next_roster(const Job& job, const std::string& name) {
  v1::Roster roster;
  roster.set_job(name);
  roster.set_epoch(job.last.number + 1);
  roster.set_secret(job.secret);
  roster.set_strategy(job.strategy);
  for (const auto& [rank, pending] : job.pending_joins) {
    v1::RosterRank& who = *roster.add_ranks();
    who.set_rank(rank);
    who.set_pid(pending.join.pid());
    who.set_host(pending.join.host());
    who.set_address(pending.join.address());
  }
  return roster;
}

void Membership::start_epoch(Job& job, const v1::Roster& roster, Messages& out) {
  job.last = {roster.epoch(), EpochEnd::over};
  job.running = RunningEpoch{.epoch = roster.epoch(), .secret = roster.secret(), .members = {}};
  for (const auto& [rank, pending] : job.pending_joins)
    job.running->members.push_back({pending.worker, roster.ranks(static_cast<int>(rank))});
  job.pending_joins.clear();
  job.timed_out.clear();
  v1::CoordinatorMessage message;
  *message.mutable_roster() = roster;
  send_to(out, workers_of(*job.running), message);
}

v1::CoordinatorMessage Membership::aborted_message(const std::string& job, uint32_t epoch,
                                                   const Status& cause) {
  v1::CoordinatorMessage message;
  message.mutable_aborted()->set_job(job);
  message.mutable_aborted()->set_epoch(epoch);
  write_status(cause, *message.mutable_aborted()->mutable_cause());
  return message;
}

void Membership::abort_epoch(Job& job, const std::string& name, const Status& cause, Worker except,
                             Messages& out) {
  std::set<Worker> workers = workers_of(*job.running);
  workers.erase(except);
  send_to(out, workers, aborted_message(name, job.running->epoch, cause));
  job.running.reset();
}

Membership::Messages Membership::rank_gone(Worker worker, const v1::RankGone& gone) {
  Messages out;
  const auto found = jobs_.find(gone.job());
  if (found == jobs_.end()) return out;
  Job& job = found->second;
  const auto pending = job.pending_joins.find(gone.rank());
  if (gone.epoch() == 0 && pending != job.pending_joins.end() && pending->second.worker == worker)
    job.pending_joins.erase(pending);
  const bool current = job.running && job.running->epoch == gone.epoch() &&
                       gone.rank() < job.running->members.size();
  if (current && job.running->members[gone.rank()].worker == worker) {
    job.running->members[gone.rank()].worker = 0;
    // The job's leader tells the workers of a death, in the order of their operations: those that
    // the dead rank had contributed to may still complete. Here the epoch only ends.
    if (!read_status(gone.cause()).ok()) end_by_death(job);
  }
  advance(gone.job(), out);
  return out;
}

void Membership::end_by_death(Job& job) {
  if (job.running->epoch == job.last.number) job.last.end = EpochEnd::death;
  job.running.reset();
}

Membership::Messages Membership::worker_gone(Worker worker, TimePoint now) {
  Messages out;
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    const std::string name = next->first;
    Job& job = (next++)->second;
    remove_worker(job, worker, name, now, out);
    advance(name, out);
  }
  return out;
}

void Membership::remove_worker(Job& job, Worker worker, const std::string& name, TimePoint now,
                               Messages& out) {
  std::erase_if(job.pending_joins,
                [&](const auto& entry) { return entry.second.worker == worker; });
  if (!job.running) return;
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < job.running->members.size(); ++rank)
    if (job.running->members[rank].worker == worker) ranks.push_back(rank);
  if (ranks.empty()) return;
  if (options_.grace.count() == 0) return abort_for(job, name, ranks, worker, out);
  for (const uint32_t rank : ranks) {
    job.running->members[rank].worker = 0;
    job.running->members[rank].awaited = now + options_.grace;
  }
}

void Membership::abort_for(Job& job, const std::string& name, const std::vector<uint32_t>& ranks,
                           Worker except, Messages& out) {
  const std::string host = job.running->members[ranks[0]].who.host();
  const Status cause =
      unavailable("the worker of host " + host + " (" + list_ranks(ranks) + ") is gone",
                  {.rank = -1, .host = host});
  abort_epoch(job, name, cause, except, out);
}

Membership::Messages Membership::expire(TimePoint now, const std::string& obstacle) {
  Messages out = expire_awaited(now);
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    const std::string name = next->first;
    Job& job = (next++)->second;
    const Status status = job.pending_joins.empty() ? Status() : timeout_status(job, obstacle);
    std::erase_if(job.pending_joins, [&](const auto& entry) {
      if (entry.second.deadline > now) return false;
      out.push_back(refusal(entry.second, status));
      job.timed_out.insert(entry.first);
      return true;
    });
    advance(name, out);
  }
  return out;
}

Membership::Messages Membership::expire_awaited(TimePoint now) {
  Messages out;
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    const std::string name = next->first;
    Job& job = (next++)->second;
    for (const std::string& host : late_hosts(job, now)) give_up_awaited(job, name, host, out);
    advance(name, out);
  }
  return out;
}

// By host, because a worker is named with all of its ranks.
std::set<std::string> Membership::late_hosts(Job& job, TimePoint now) const {
  std::set<std::string> late;
  if (!job.running) return late;
  for (Member& member : job.running->members) {
    if (!is_awaited(member) || *member.awaited > now) continue;
    if (now - *member.awaited > std::max(options_.grace / 2, kSuspended))
      member.awaited = now + options_.grace;
    else
      late.insert(member.who.host());
  }
  return late;
}

Status Membership::timeout_status(const Job& job, const std::string& obstacle) {
  const v1::JoinRank& any = job.pending_joins.begin()->second.join;
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < any.world_size(); ++rank)
    if (!job.pending_joins.contains(rank) && !job.timed_out.contains(rank)) missing.push_back(rank);
  const std::string of = " of " + std::to_string(any.world_size());
  if (!missing.empty())
    return deadline_exceeded(quoted(any.job()) + ": " + list_ranks(missing) + of +
                                 (missing.size() == 1 ? " has" : " have") + " not joined",
                             {.rank = static_cast<int>(missing[0]), .host = {}});
  if (job.timed_out.empty() && !job.running)
    return unavailable(quoted(any.job()) + ": all ranks have joined, but the epoch cannot start: " +
                       (obstacle.empty() ? "its state is still being kept" : obstacle));
  if (job.timed_out.empty() && job.running)
    return deadline_exceeded(quoted(any.job()) + ": all of the next epoch have joined, but epoch " +
                             std::to_string(job.running->epoch) + " still runs");
  const std::vector<uint32_t> timed_out(job.timed_out.begin(), job.timed_out.end());
  return deadline_exceeded(
      quoted(any.job()) + ": " + list_ranks(timed_out) + of + " joined, but waited less long",
      {.rank = static_cast<int>(timed_out.at(0)), .host = {}});
}

TimePoint Membership::next_deadline() const {
  TimePoint soonest = TimePoint::max();
  for (const auto& [name, job] : jobs_) {
    for (const auto& [rank, pending] : job.pending_joins)
      soonest = std::min(soonest, pending.deadline);
    if (!job.running) continue;
    for (const Member& member : job.running->members)
      soonest = std::min(soonest, member.awaited.value_or(TimePoint::max()));
  }
  return soonest;
}

Result<Membership::Messages> Membership::set_strategy(const std::string& job,
                                                      const std::string& strategy,
                                                      const v1::Owner* owner) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end() || (owner != nullptr && !is_owner(found->second.owner, *owner)))
    return not_found("there is no " + quoted(job) + "; `tutti status` lists the jobs");
  found->second.strategy = strategy;
  if (found->second.running) note_change(found->second, job);
  std::set<Worker> workers;
  if (found->second.running) workers = workers_of(*found->second.running);
  for (const auto& [rank, pending] : found->second.pending_joins) workers.insert(pending.worker);
  v1::CoordinatorMessage message;
  message.mutable_strategy()->set_job(job);
  message.mutable_strategy()->set_strategy(strategy);
  Messages out;
  send_to(out, workers, message);
  return out;
}

// ---- Workers that reconnect ----

Membership::Messages Membership::resume(Worker worker, const v1::Resume& resume) {
  Messages out;
  if (!is_valid(resume)) return out;
  const std::string& name = resume.job();
  if (const Status shown = check_pass_for(resume.pass(), name, resume.host()); !shown.ok()) {
    send_to(out, {worker}, aborted_message(name, resume.epoch(), shown));
    return out;
  }
  Job& job = find_or_create(name, resume.pass());
  const LastEpoch heard_of{resume.epoch(), EpochEnd::unknown};
  if (resume.epoch() > job.last.number || job.last == heard_of)
    adopt_epoch(job, worker, resume, out);
  const bool broke = job.last == LastEpoch{resume.epoch(), EpochEnd::death};
  if (is_running(job, resume)) {
    reattach(job, worker, resume);
  } else if (!resume.ranks().empty() && !resume.has_broken() && !broke) {
    const std::string epoch = "epoch " + std::to_string(resume.epoch());
    const Status cause = unavailable(epoch + " of job \"" + name + "\"" +
                                     " was ended while this worker was out of the coordinator's "
                                     "reach; join again");
    send_to(out, {worker}, aborted_message(name, resume.epoch(), cause));
  }
  advance(name, out);
  return out;
}

// Compares secrets too: a coordinator that lost its state may have reused the number.
bool Membership::is_running(const Job& job, const v1::Resume& resume) {
  return job.running && job.running->epoch == resume.epoch() &&
         same_token(job.running->secret, resume.roster().secret());
}

void Membership::adopt_epoch(Job& job, Worker worker, const v1::Resume& resume, Messages& out) {
  job.last = {resume.epoch(), resume.has_broken() ? EpochEnd::death : EpochEnd::unknown};
  if (resume.ranks().empty() || resume.has_broken()) return;
  job.last.end = EpochEnd::over;  // Takes effect when it no longer runs.
  const std::string& name = resume.job();
  const std::string epoch = "epoch " + std::to_string(resume.epoch());
  if (job.running) abort_epoch(job, name, aborted(epoch + " has taken over"), worker, out);
  job.strategy = resume.roster().strategy();
  job.running =
      RunningEpoch{.epoch = resume.epoch(), .secret = resume.roster().secret(), .members = {}};
  for (const v1::RosterRank& who : resume.roster().ranks())
    job.running->members.push_back({.worker = 0, .who = who, .was_here = false});
  note_change(job, name);
}

void Membership::reattach(Job& job, Worker worker, const v1::Resume& resume) {
  if (resume.has_broken()) return end_by_death(job);
  std::vector<Member>& members = job.running->members;
  for (Member& member : members)
    if (member.who.host() == resume.host()) member = {.worker = 0, .who = member.who};
  for (const uint32_t rank : resume.ranks())
    if (rank < members.size()) members[rank] = {.worker = worker, .who = members[rank].who};
}

}  // namespace tutti

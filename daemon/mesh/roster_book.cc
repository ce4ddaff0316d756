#include "daemon/mesh/roster_book.h"

#include <algorithm>
#include <cctype>

#include "daemon/mesh/mesh.h"
#include "daemon/mesh/wire.h"
#include "proto/segment.h"

namespace tutti {
namespace {

constexpr uint32_t kTimeoutDefaultMs = 30'000;
constexpr size_t kNamedOfASize = 4;

std::string quoted(const std::string& job) { return "job \"" + job + "\""; }

// "(host b, pid 4711)", of a join or of a roster's rank.
template <class Who>
std::string whereabouts(const Who& who) {
  return "(host " + who.host() + ", pid " + std::to_string(who.pid()) + ")";
}

std::string describe(const v1::JoinRank& join) {
  return "rank " + std::to_string(join.rank()) + " " + whereabouts(join);
}

bool well_formed(const v1::Resume& resume) {
  const auto& ranks = resume.ranks();
  const int world_size = resume.roster().ranks_size();
  return resume.epoch() != 0 && resume.epoch() <= kEpochMax && from_message(resume.roster()).ok() &&
         check_job(resume.job(), 0, static_cast<uint32_t>(world_size)).ok() &&
         std::ranges::all_of(ranks, [&](uint32_t r) { return r < uint32_t(world_size); });
}

}  // namespace

RosterBook::Answers RosterBook::join(Worker worker, const v1::JoinRank& join,
                                     const std::string& secret, TimePoint now) {
  const uint32_t timeout_ms = join.timeout_ms() == 0 ? kTimeoutDefaultMs : join.timeout_ms();
  const Joining joining{worker, join, now + Millis(timeout_ms), ++joins_};
  Status status = check(join);
  Answers answers;
  if (status.ok()) answers = end_former(worker, join);
  const auto known = jobs_.find(join.job());
  if (status.ok() && known != jobs_.end()) status = check_place(known->second, join);
  if (!status.ok()) {
    answers.push_back(refusal(joining, status));
    return answers;
  }
  Job& job = open(join.job());
  if (join.last_epoch() > job.last.number) job.last = {join.last_epoch(), EpochEnd::unknown};
  if (agrees(job, join)) {
    job.joining.emplace(join.rank(), joining);
    job.gave_up.erase(join.rank());
    job.secret = secret;
  } else {
    refuse_world_size(job, joining, answers);
  }
  settle(join.job(), answers);
  return answers;
}

Status RosterBook::check(const v1::JoinRank& join) const {
  if (join.version() != kProtocolVersion)
    return failed_precondition("host " + join.host() + " speaks protocol version " +
                                   std::to_string(join.version()) + ", the coordinator version " +
                                   std::to_string(kProtocolVersion) +
                                   "; install the same release on every host",
                               {.host = join.host()});
  if (!token_.empty() && !same_token(token_, join.token()))
    return unauthenticated("rank " + std::to_string(join.rank()) + " of " + quoted(join.job()) +
                           " " + whereabouts(join) +
                           " showed a wrong token; set TUTTI_TOKEN to the agents' token");
  if (join.last_epoch() > kEpochMax)
    return invalid_argument("rank " + std::to_string(join.rank()) + " of " + quoted(join.job()) +
                            " " + whereabouts(join) + " claims to know epoch " +
                            std::to_string(join.last_epoch()) + "; there is none beyond " +
                            std::to_string(kEpochMax));
  return check_job(join.job(), join.rank(), join.world_size());
}

// A worker whose stream was cut dials again, and may come by the new one before the end of the
// first is seen here. What it had there it has resumed, or given up.
RosterBook::Answers RosterBook::end_former(Worker worker, const v1::JoinRank& join) {
  const auto known = jobs_.find(join.job());
  if (known == jobs_.end()) return {};
  Worker former = 0;
  const auto look_at = [&](Worker other, const auto& who) {
    if (other != 0 && other != worker && who.host() == join.host() &&
        who.address() == join.address())
      former = other;
  };
  for (const auto& [rank, joining] : known->second.joining) look_at(joining.worker, joining.join);
  if (known->second.running)
    for (const Member& member : known->second.running->members) look_at(member.worker, member.who);
  return former == 0 ? Answers() : end(former);
}

Status RosterBook::check_place(const Job& job, const v1::JoinRank& join) {
  const std::string rank = "rank " + std::to_string(join.rank()) + " of " + quoted(join.job());
  const int culprit = static_cast<int>(join.rank());
  if (job.running && join.rank() < job.running->members.size()) {
    const Member& member = job.running->members[join.rank()];
    if (member.worker != 0)
      return already_exists(rank + " runs in epoch " + std::to_string(job.running->epoch) + " " +
                                whereabouts(member.who),
                            {culprit, member.who.host()});
  }
  if (!agrees(job, join)) return {};
  const auto holder = job.joining.find(join.rank());
  if (holder != job.joining.end())
    return already_exists(rank + " has joined already " + whereabouts(holder->second.join),
                          {culprit, holder->second.join.host()});
  return check_host(job, join);
}

Status RosterBook::check_host(const Job& job, const v1::JoinRank& join) {
  for (const auto& [rank, joining] : job.joining)
    if (joining.join.host() == join.host() && joining.join.address() != join.address())
      return failed_precondition("two workers of " + quoted(join.job()) + " call their host " +
                                     join.host() + " (" + joining.join.address() + " and " +
                                     join.address() + "); give each agent its own name with --host",
                                 {static_cast<int>(join.rank()), join.host()});
  return {};
}

// All that wait ask for one size: the first that does not ends their waiting.
bool RosterBook::agrees(const Job& job, const v1::JoinRank& join) {
  return job.joining.empty() || job.joining.begin()->second.join.world_size() == join.world_size();
}

void RosterBook::refuse_world_size(Job& job, const Joining& late, Answers& answers) {
  const uint32_t size = job.joining.begin()->second.join.world_size();
  std::string waiting;
  size_t named = 0;
  for (const auto& [rank, joining] : job.joining)
    if (named++ < kNamedOfASize) waiting += (waiting.empty() ? "" : ", ") + describe(joining.join);
  if (named > kNamedOfASize) waiting += " and " + std::to_string(named - kNamedOfASize) + " more";
  const Status status = failed_precondition(
      quoted(late.join.job()) + ": the ranks disagree on the world size: it is " +
          std::to_string(size) + " for " + waiting + "; it is " +
          std::to_string(late.join.world_size()) + " for " + describe(late.join) +
          "; start all with the same",
      {static_cast<int>(late.join.rank()), late.join.host()});
  for (const auto& [rank, joining] : job.joining) answers.push_back(refusal(joining, status));
  answers.push_back(refusal(late, status));
  job.joining.clear();
}

RosterBook::Job& RosterBook::open(const std::string& name) {
  const auto [entry, is_new] = jobs_.try_emplace(name);
  if (is_new) entry->second.last = last_epochs_.take(name);
  return entry->second;
}

void RosterBook::settle(const std::string& name, Answers& answers) {
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  if (job.running && workers_of(*job.running).empty()) job.running.reset();
  if (job.joining.empty()) job.gave_up.clear();
  const bool complete =
      !job.joining.empty() && job.joining.size() == job.joining.begin()->second.join.world_size();
  if (complete && !job.running) assemble(job, name, answers);
  if (job.running || !job.joining.empty()) return;
  if (job.last.number != 0) last_epochs_.keep(name, job.last);
  jobs_.erase(found);
}

std::set<RosterBook::Worker> RosterBook::workers_of(const Running& running) {
  std::set<Worker> workers;
  for (const Member& member : running.members)
    if (member.worker != 0) workers.insert(member.worker);
  return workers;
}

void RosterBook::tell(Answers& answers, const std::set<Worker>& workers,
                      const v1::CoordinatorMessage& message) {
  for (const Worker worker : workers) answers.push_back({worker, message});
}

RosterBook::Answer RosterBook::refusal(const Joining& joining, const Status& status) {
  Answer answer{.to = joining.worker, .message = {}};
  v1::JoinRefused& refused = *answer.message.mutable_refused();
  refused.set_job(joining.join.job());
  refused.set_rank(joining.join.rank());
  refused.set_number(joining.join.number());
  write_status(status, *refused.mutable_status());
  return answer;
}

void RosterBook::assemble(Job& job, const std::string& name, Answers& answers) {
  const uint32_t epoch = job.last.number + 1;
  job.last = {epoch, EpochEnd::over};
  job.running = Running{.epoch = epoch, .secret = job.secret, .members = {}};
  v1::CoordinatorMessage message;
  v1::Roster& roster = *message.mutable_roster();
  roster.set_job(name);
  roster.set_epoch(epoch);
  roster.set_secret(job.secret);
  roster.set_strategy(job.strategy);
  for (const auto& [rank, joining] : job.joining) {
    v1::RosterRank& who = *roster.add_ranks();
    who.set_rank(rank);
    who.set_pid(joining.join.pid());
    who.set_host(joining.join.host());
    who.set_address(joining.join.address());
    job.running->members.push_back({joining.worker, who});
  }
  job.joining.clear();
  job.gave_up.clear();
  tell(answers, workers_of(*job.running), message);
}

v1::CoordinatorMessage RosterBook::aborted_message(const std::string& job, uint32_t epoch,
                                                   const Status& cause) {
  v1::CoordinatorMessage message;
  message.mutable_aborted()->set_job(job);
  message.mutable_aborted()->set_epoch(epoch);
  write_status(cause, *message.mutable_aborted()->mutable_cause());
  return message;
}

void RosterBook::break_epoch(Job& job, const std::string& name, const Status& cause, Worker except,
                             Answers& answers) {
  std::set<Worker> workers = workers_of(*job.running);
  workers.erase(except);
  tell(answers, workers, aborted_message(name, job.running->epoch, cause));
  job.running.reset();
}

RosterBook::Answers RosterBook::gone(Worker worker, const v1::RankGone& gone) {
  Answers answers;
  const auto found = jobs_.find(gone.job());
  if (found == jobs_.end()) return answers;
  Job& job = found->second;
  const auto joining = job.joining.find(gone.rank());
  if (gone.epoch() == 0 && joining != job.joining.end() && joining->second.worker == worker)
    job.joining.erase(joining);
  const bool current = job.running && job.running->epoch == gone.epoch() &&
                       gone.rank() < job.running->members.size();
  if (current && job.running->members[gone.rank()].worker == worker) {
    job.running->members[gone.rank()].worker = 0;
    // The workers hear of a death from their leader, in the order of their operations: what the
    // dead rank had contributed to may still end well. Here the epoch only makes room for the next.
    if (!read_status(gone.cause()).ok()) break_by_death(job);
  }
  settle(gone.job(), answers);
  return answers;
}

void RosterBook::break_by_death(Job& job) {
  if (job.running->epoch == job.last.number) job.last.end = EpochEnd::death;
  job.running.reset();
}

RosterBook::Answers RosterBook::end(Worker worker) {
  Answers answers;
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    const std::string name = next->first;
    Job& job = (next++)->second;
    withdraw(job, worker, name, answers);
    settle(name, answers);
  }
  return answers;
}

void RosterBook::withdraw(Job& job, Worker worker, const std::string& name, Answers& answers) {
  std::erase_if(job.joining, [&](const auto& entry) { return entry.second.worker == worker; });
  if (!job.running) return;
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < job.running->members.size(); ++rank)
    if (job.running->members[rank].worker == worker) ranks.push_back(rank);
  if (ranks.empty()) return;
  const std::string host = job.running->members[ranks[0]].who.host();
  const Status cause =
      unavailable("the worker of host " + host + " (" + list_ranks(ranks) + ") is gone",
                  {.rank = static_cast<int>(ranks[0]), .host = host});
  break_epoch(job, name, cause, worker, answers);
}

RosterBook::Answers RosterBook::expire(TimePoint now) {
  Answers answers;
  for (auto next = jobs_.begin(); next != jobs_.end();) {
    const std::string name = next->first;
    Job& job = (next++)->second;
    const Status status = job.joining.empty() ? Status() : lateness(job);
    std::erase_if(job.joining, [&](const auto& entry) {
      if (entry.second.deadline > now) return false;
      answers.push_back(refusal(entry.second, status));
      job.gave_up.insert(entry.first);
      return true;
    });
    settle(name, answers);
  }
  return answers;
}

Status RosterBook::lateness(const Job& job) {
  const v1::JoinRank& any = job.joining.begin()->second.join;
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < any.world_size(); ++rank)
    if (!job.joining.contains(rank) && !job.gave_up.contains(rank)) missing.push_back(rank);
  const std::string of = " of " + std::to_string(any.world_size());
  if (!missing.empty())
    return deadline_exceeded(quoted(any.job()) + ": " + list_ranks(missing) + of +
                                 (missing.size() == 1 ? " has" : " have") + " not joined",
                             {.rank = static_cast<int>(missing[0]), .host = {}});
  if (job.gave_up.empty() && job.running)
    return deadline_exceeded(quoted(any.job()) + ": all of the next epoch have joined, but epoch " +
                             std::to_string(job.running->epoch) + " still runs");
  const std::vector<uint32_t> quitters(job.gave_up.begin(), job.gave_up.end());
  return deadline_exceeded(
      quoted(any.job()) + ": " + list_ranks(quitters) + of + " joined, but waited less long",
      {.rank = static_cast<int>(quitters.at(0)), .host = {}});
}

TimePoint RosterBook::next_deadline() const {
  TimePoint soonest = TimePoint::max();
  for (const auto& [name, job] : jobs_)
    for (const auto& [rank, joining] : job.joining) soonest = std::min(soonest, joining.deadline);
  return soonest;
}

Result<RosterBook::Answers> RosterBook::set_strategy(const std::string& job,
                                                     const std::string& strategy) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end())
    return not_found("there is no " + quoted(job) + "; `tutti status` lists the jobs");
  found->second.strategy = strategy;
  std::set<Worker> workers;
  if (found->second.running) workers = workers_of(*found->second.running);
  for (const auto& [rank, joining] : found->second.joining) workers.insert(joining.worker);
  v1::CoordinatorMessage message;
  message.mutable_strategy()->set_job(job);
  message.mutable_strategy()->set_strategy(strategy);
  Answers answers;
  tell(answers, workers, message);
  return answers;
}

// ---- Workers that come back: of epochs that this book may not know ----

RosterBook::Answers RosterBook::resume(Worker worker, const v1::Resume& resume) {
  Answers answers;
  const bool stranger = !token_.empty() && !same_token(token_, resume.token());
  if (stranger || !well_formed(resume)) return answers;
  const std::string& name = resume.job();
  Job& job = open(name);
  const LastEpoch heard_of{resume.epoch(), EpochEnd::unknown};
  if (resume.epoch() > job.last.number || job.last == heard_of) learn(job, worker, resume, answers);
  const bool broke = job.last == LastEpoch{resume.epoch(), EpochEnd::death};
  if (is_running(job, resume)) {
    take_over(job, worker, resume);
  } else if (!resume.ranks().empty() && !resume.has_broken() && !broke) {
    const std::string epoch = "epoch " + std::to_string(resume.epoch());
    const Status cause = unavailable(epoch + " of job \"" + name + "\"" +
                                     " was ended while this worker was out of the coordinator's "
                                     "reach; join again");
    tell(answers, {worker}, aborted_message(name, resume.epoch(), cause));
  }
  settle(name, answers);
  return answers;
}

// Numbers are not enough: a book that lost its own may have given one twice.
bool RosterBook::is_running(const Job& job, const v1::Resume& resume) {
  return job.running && job.running->epoch == resume.epoch() &&
         same_token(job.running->secret, resume.roster().secret());
}

void RosterBook::learn(Job& job, Worker worker, const v1::Resume& resume, Answers& answers) {
  job.last = {resume.epoch(), resume.has_broken() ? EpochEnd::death : EpochEnd::unknown};
  if (resume.ranks().empty() || resume.has_broken()) return;
  job.last.end = EpochEnd::over;  // Once it does not run any more.
  const std::string& name = resume.job();
  const std::string epoch = "epoch " + std::to_string(resume.epoch());
  if (job.running) break_epoch(job, name, aborted(epoch + " has taken over"), worker, answers);
  job.strategy = resume.roster().strategy();
  job.running = Running{.epoch = resume.epoch(), .secret = resume.roster().secret(), .members = {}};
  for (const v1::RosterRank& who : resume.roster().ranks())
    job.running->members.push_back({0, who});
}

void RosterBook::take_over(Job& job, Worker worker, const v1::Resume& resume) {
  if (resume.has_broken()) return break_by_death(job);
  std::vector<Member>& members = job.running->members;
  for (Member& member : members)
    if (member.who.host() == resume.host()) member.worker = 0;
  for (const uint32_t rank : resume.ranks())
    if (rank < members.size()) members[rank].worker = worker;
}

}  // namespace tutti

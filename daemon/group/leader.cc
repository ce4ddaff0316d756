#include "daemon/group/leader.h"

#include <algorithm>
#include <numeric>

#include "daemon/group/failures.h"

namespace tutti {
namespace {

using Phase = Report::Phase;
using Reason = Report::Reason;

}  // namespace

Leader::Leader(const Roster& roster, const std::vector<Host>& hosts, const Strategies& job)
    : roster_(roster),
      hosts_(hosts),
      all_(roster.ranks.size()),
      home_(roster.ranks.size()),
      first_job_(job),
      job_(job) {
  std::iota(all_.begin(), all_.end(), 0);
  for (size_t host = 0; host < hosts_.size(); ++host)
    for (const int rank : hosts_[host].ranks)
      home_[static_cast<size_t>(rank)] = static_cast<int>(host);
  groups_[0].members = all_;
  groups_[0].table.job = groups_[0].wanted.job = job;
}

const Ranks& Leader::members_of(uint32_t group, const Ranks& named) const {
  return group == 0 ? all_ : named;
}

std::vector<int> Leader::hosts_with(const Ranks& members) const {
  std::set<int> hosts;
  for (const int rank : members) hosts.insert(home_[static_cast<size_t>(rank)]);
  return {hosts.begin(), hosts.end()};
}

// Whether the members are ranks of the job, each once, and those known for the number.
bool Leader::is_group(uint32_t number, const Ranks& members) const {
  if (number == 0) return members.empty();
  const auto known = groups_.find(number);
  if (known != groups_.end()) return known->second.members == members;
  return could_be_group(members, all_.size());
}

Status Leader::check(int host, const Report& report) const {
  if (!is_group(report.op.group, report.members))
    return data_loss("a Report with an invalid group number or list of ranks");
  const Ranks& members = members_of(report.op.group, report.members);
  const std::vector<int> hosts = hosts_with(members);
  const auto takes_part = [&](int which) { return std::ranges::find(hosts, which) != hosts.end(); };
  const auto is_there = [&](int rank) {
    return rank >= 0 && rank < static_cast<int>(members.size()) &&
           home_[static_cast<size_t>(members[static_cast<size_t>(rank)])] == host;
  };
  const bool asked = report.rank == -1 || is_there(report.rank);
  const bool needs_rank = report.reason != Reason::answer && report.reason != Reason::refusal;
  const auto invalid = [](const std::string& field) {
    return data_loss("a Report with an invalid " + field);
  };
  if (!takes_part(host)) return invalid("sender");
  if (!asked || (needs_rank && report.phase != Phase::over && report.rank < 0))
    return invalid("rank");
  if (!std::ranges::all_of(report.missing, is_there)) return invalid("list of missing ranks");
  if (report.waiting_for >= static_cast<int>(members.size()))
    return invalid("rank that it waits for");
  if (report.reason == Reason::refusal && report.status.ok()) return invalid("status");
  if (report.reason == Reason::mismatch && (!takes_part(report.peer) || report.peer == host))
    return invalid("peer");
  return {};
}

// Whether a rank left before it called the operation, so that it fails everywhere.
bool Leader::is_cut_off(const EpochOp& op, const Ranks& members) const {
  return std::ranges::any_of(gone_, [&](const auto& entry) {
    if (std::ranges::find(members, entry.first) == members.end()) return false;
    const auto bound = entry.second.calls.find(op.group);
    return bound == entry.second.calls.end() || op.number >= bound->second;
  });
}

void Leader::send_to_hosts(const Ranks& members, const Message& message) {
  for (const int host : hosts_with(members)) sends_.push_back({host, message});
}

void Leader::fail(const EpochOp& op, const Ranks& members, const Status& status) {
  waiting_.erase(op);
  send_to_hosts(members, Fail{op, op.group == 0 ? Ranks() : members, status});
}

void Leader::abort(const Status& cause) {
  if (std::exchange(over_, true)) return;
  queries_.clear();
  send_to_hosts(all_, Abort{cause});
}

// ---- From the followers ----

Status Leader::on_message(int host, const Message& message, TimePoint now) {
  if (over_) return {};
  return std::visit([&](const auto& kind) { return on(host, kind, now); }, message);
}

Status Leader::on(int host, const Announce& announce, TimePoint) {
  if (groups_.size() >= kGroupsMax * hosts_.size())
    return data_loss("an Announce beyond the most groups allowed");
  if (announce.group == 0 || !is_group(announce.group, announce.members))
    return data_loss("an Announce with an invalid group number or list of ranks");
  const std::vector<int> hosts = hosts_with(announce.members);
  if (std::ranges::find(hosts, host) == hosts.end())
    return data_loss("an Announce from a host without a rank in the group");
  const auto [made, fresh] = groups_.try_emplace(announce.group);
  if (!fresh) return {};
  made->second.members = announce.members;
  made->second.table.job = first_job_;
  made->second.wanted.job = job_;
  propose(announce.group, made->second);
  return {};
}

Status Leader::on(int host, const RankGone& gone, TimePoint) {
  if (gone.rank < 0 || gone.rank >= static_cast<int>(all_.size()) ||
      home_[static_cast<size_t>(gone.rank)] != host)
    return data_loss("the departure of rank " + std::to_string(gone.rank) + " of another host");
  if (!gone_.emplace(gone.rank, gone).second) return {};
  send_to_hosts(all_, gone);
  std::erase_if(queries_,
                [&](const auto& entry) { return is_cut_off(entry.first, entry.second.members); });
  return {};
}

Status Leader::on(int, const Abort& message, TimePoint) {
  if (message.cause.ok()) return data_loss("an Abort without a cause");
  abort(message.cause);
  return {};
}

Status Leader::on(int host, const Report& report, TimePoint now) {
  if (Status sound = check(host, report); !sound.ok()) return sound;
  const Ranks& members = members_of(report.op.group, report.members);
  if (is_cut_off(report.op, members)) return {};
  if (report.reason == Reason::refusal) {
    queries_.erase(report.op);
    fail(report.op, members, report.status);
    return {};
  }
  if (report.reason == Reason::waiting) {
    compare(report, members);
    return {};
  }
  const bool open = queries_.contains(report.op);
  if (!open && report.reason == Reason::answer) return {};
  PendingQuery& query = open_query(report, now);
  query.reports[host] = report;
  if (report.reason == Reason::answer) query.answered.insert(host);
  if (report.reason == Reason::late) {
    if (query.late.empty()) query.first = report;
    query.late.push_back(host);
  }
  if (report.reason == Reason::mismatch && query.mismatch < 0) {
    query.mismatch = host;
    query.peer = report.peer;
  }
  if (is_answered(query)) conclude(queries_.find(report.op));
  return {};
}

// ---- Queries ----

Leader::PendingQuery& Leader::open_query(const Report& report, TimePoint now) {
  const auto [at, fresh] = queries_.try_emplace(report.op);
  PendingQuery& query = at->second;
  if (!fresh) return query;
  query.members = members_of(report.op.group, report.members);
  query.first = report;
  query.until = now + kQueryTimeout;
  send_to_hosts(query.members, Query{report.op, report.members});
  return query;
}

bool Leader::is_answered(const PendingQuery& query) const {
  if (query.mismatch >= 0 && query.answered.contains(query.peer)) return true;
  return std::ranges::all_of(hosts_with(query.members), [&](int host) {
    return query.answered.contains(host) || departed_.contains(host);
  });
}

void Leader::conclude(Queries::iterator at) {
  const EpochOp op = at->first;
  const PendingQuery query = std::move(at->second);
  queries_.erase(at);
  const auto is = [&](int host, Phase phase) {
    const auto found = query.reports.find(host);
    return found != query.reports.end() && found->second.phase == phase;
  };
  const std::vector<int> hosts = hosts_with(query.members);
  const bool failed_before = query.mismatch >= 0 && is(query.peer, Phase::over);
  const bool waited_for =
      (query.mismatch >= 0 && !is(query.mismatch, Phase::over)) ||
      std::ranges::any_of(query.late, [&](int host) { return !is(host, Phase::over); });
  if (failed_before || !waited_for) return;
  std::vector<const Host*> silent;
  for (const int host : hosts)
    if (!query.answered.contains(host) && !departed_.contains(host))
      silent.push_back(&hosts_[static_cast<size_t>(host)]);
  if (query.mismatch >= 0 && is(query.peer, Phase::started) &&
      query.reports.at(query.peer).agreement == query.reports.at(query.mismatch).agreement)
    return abort(failures::lost(
        hosts_[static_cast<size_t>(query.peer)],
        data_loss("its data frames and its report carry different agreement hashes")));
  if (const auto pair = differing(query))
    return fail(op, query.members,
                disagreement(query.members, query.reports.at(pair->first),
                             pair->second < 0 ? Report{} : query.reports.at(pair->second)));
  if (std::ranges::any_of(hosts, [&](int host) { return is(host, Phase::refused); }))
    return fail(op, query.members, lateness(query, silent));
  if (!silent.empty()) return abort(failures::silence(query.first, *silent.front()));
  abort(slowness(query));
}

// The status where all hosts run the operation. A host that waits for one of its own ranks delays
// the others; if there is none, the first late report names what it waits for.
Status Leader::slowness(const PendingQuery& query) const {
  const auto waits_at_home = [&](const auto& entry) {
    const auto& [host, report] = entry;
    return report.phase == Phase::started && report.waiting_for >= 0 &&
           home_[static_cast<size_t>(query.members[static_cast<size_t>(report.waiting_for)])] ==
               host;
  };
  const auto own = std::ranges::find_if(query.reports, waits_at_home);
  const bool found = own != query.reports.end();
  const int host = found ? own->first : query.late.front();
  Report late = query.first;
  if (found) {
    late.waiting = own->second.waiting;
    late.waiting_for = own->second.waiting_for;
  }
  return failures::slowness(roster_, query.members, late, hosts_[static_cast<size_t>(host)].name);
}

// Two hosts that run different operations; -1: the second one's operation is not known.
std::optional<std::pair<int, int>> Leader::differing(const PendingQuery& query) const {
  if (query.mismatch >= 0)
    return std::pair(query.mismatch, query.reports.contains(query.peer) ? query.peer : -1);
  int first = -1;
  for (const auto& [host, report] : query.reports) {
    if (report.phase != Phase::started) continue;
    if (first < 0) first = host;
    if (report.agreement != query.reports.at(first).agreement) return std::pair(first, host);
  }
  return std::nullopt;
}

// Hosts that disagree need not exchange a frame: with different strategies or roots they may wait
// for each other in silence, as may hosts that wait for their own ranks. So each host that waits
// for long is compared with the first one that did.
void Leader::compare(const Report& report, const Ranks& members) {
  if (report.phase != Phase::started && report.phase != Phase::gathering) return;
  const auto found = waiting_.find(report.op);
  if (found == waiting_.end()) return remember(report);
  Report& first = found->second.report;
  const bool runs = report.phase == Phase::started;
  const bool both_run = runs && first.phase == Phase::started;
  if (both_run && first.agreement == report.agreement) return;
  if (!both_run && first.signature == report.signature) {
    if (runs) first = report;
    return;
  }
  fail(report.op, members, disagreement(members, first, report));
}

void Leader::remember(const Report& report) {
  const auto older = [](const auto& a, const auto& b) { return a.second.order < b.second.order; };
  if (waiting_.size() >= kComparedMax) waiting_.erase(std::ranges::min_element(waiting_, older));
  waiting_.emplace(report.op, WaitingReport{report, waiting_count_++});
}

Status Leader::disagreement(const Ranks& members, const Report& one, const Report& other) const {
  return failures::disagreement(roster_, members, one.op.number, {one.rank, one.signature},
                                {other.rank, other.signature});
}

Status Leader::lateness(const PendingQuery& query, const std::vector<const Host*>& silent) const {
  std::set<int> missing;
  for (const auto& [host, report] : query.reports)
    if (report.phase == Phase::refused)
      missing.insert(report.missing.begin(), report.missing.end());
  return failures::lateness(roster_, query.members, query.first, {missing.begin(), missing.end()},
                            silent);
}

void Leader::on_host_departed(int host) {
  departed_.insert(host);
  std::vector<EpochOp> answered;
  for (const auto& [op, query] : queries_)
    if (is_answered(query)) answered.push_back(op);
  for (const EpochOp& op : answered)
    if (const auto at = queries_.find(op); at != queries_.end()) conclude(at);
  for (auto& [number, group] : groups_) adopt_if_fenced(number, group);
}

void Leader::on_time(TimePoint now) {
  std::vector<EpochOp> due;
  for (auto& [op, query] : queries_) {
    if (query.until > now) continue;
    const bool looked = std::exchange(query.rechecking, true) && now <= query.until + kRecheck;
    if (looked)
      due.push_back(op);
    else
      query.until = now + kRecheck;
  }
  for (const EpochOp& op : due)
    if (const auto at = queries_.find(op); at != queries_.end()) conclude(at);
}

std::optional<TimePoint> Leader::next_timer() const {
  std::optional<TimePoint> next;
  for (const auto& [op, query] : queries_)
    if (!next || query.until < *next) next = query.until;
  return next;
}

// ---- Strategies ----

void Leader::set_job(const Strategies& job) {
  job_ = job;
  for (auto& [number, group] : groups_) {
    group.wanted.job = job;
    propose(number, group);
  }
}

void Leader::set_measured(uint32_t number, Collective collective, int size_class,
                          const Strategy& global) {
  const auto found = groups_.find(number);
  if (found == groups_.end()) return;
  found->second.wanted.measured[{collective, size_class}] = global;
  propose(number, found->second);
}

void Leader::use_nccl() {
  groups_.at(0).wanted.nccl = true;
  propose(0, groups_.at(0));
}

// One change at a time; later wishes are proposed after it.
void Leader::propose(uint32_t number, GroupStrategies& group) {
  if (group.proposing || group.table == group.wanted || over_) return;
  group.proposing = true;
  group.table = group.wanted;
  group.fences.clear();
  send_to_hosts(group.members, Propose{number, number == 0 ? Ranks() : group.members,
                                       ++group.version, group.table});
}

Status Leader::on(int host, const Fence& fence, TimePoint) {
  const auto found = groups_.find(fence.group);
  if (found == groups_.end()) return data_loss("a Fence for an unknown group");
  GroupStrategies& group = found->second;
  if (!group.proposing || fence.version != group.version)
    return data_loss("a fence that was not asked for");
  group.fences.emplace(host, fence.number);
  adopt_if_fenced(fence.group, group);
  return {};
}

void Leader::adopt_if_fenced(uint32_t number, GroupStrategies& group) {
  if (!group.proposing) return;
  uint64_t from = 0;
  for (const int host : hosts_with(group.members)) {
    const auto fence = group.fences.find(host);
    if (fence != group.fences.end())
      from = std::max(from, fence->second);
    else if (!departed_.contains(host))
      return;
  }
  group.proposing = false;
  send_to_hosts(group.members, Adopt{number, group.version, from});
  propose(number, group);
}

size_t Leader::pending() const {
  const auto changing =
      std::ranges::count_if(groups_, [](const auto& entry) { return entry.second.proposing; });
  return queries_.size() + static_cast<size_t>(changing);
}

}  // namespace tutti

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

// ---- Who is meant ----

const Members& Leader::members_of(uint32_t group, const Members& named) const {
  return group == 0 ? all_ : named;
}

std::vector<int> Leader::places(const Members& members) const {
  std::set<int> hosts;
  for (const int rank : members) hosts.insert(home_[static_cast<size_t>(rank)]);
  return {hosts.begin(), hosts.end()};
}

// Ranks of the job, each once, and the same whoever names the group.
bool Leader::is_group(uint32_t number, const Members& members) const {
  if (number == 0) return members.empty();
  const auto known = groups_.find(number);
  if (known != groups_.end()) return known->second.members == members;
  return could_be_group(members, all_.size());
}

Status Leader::check(int host, const Report& report) const {
  if (!is_group(report.key.group, report.members)) return data_loss("a report of no group");
  const Members& members = members_of(report.key.group, report.members);
  const std::vector<int> hosts = places(members);
  const auto takes_part = [&](int which) { return std::ranges::find(hosts, which) != hosts.end(); };
  const auto is_there = [&](int rank) {
    return rank >= 0 && rank < static_cast<int>(members.size()) &&
           home_[static_cast<size_t>(members[static_cast<size_t>(rank)])] == host;
  };
  const bool asked = report.rank == -1 || is_there(report.rank);
  const bool needs_rank = report.reason != Reason::answer && report.reason != Reason::refusal;
  const bool sound =
      takes_part(host) && asked && std::ranges::all_of(report.missing, is_there) &&
      (!needs_rank || report.phase == Phase::over || report.rank >= 0) &&
      report.waiting_for < static_cast<int>(members.size()) &&
      (report.reason != Reason::refusal || !report.status.ok()) &&
      (report.reason != Reason::mismatch || (takes_part(report.peer) && report.peer != host));
  return sound ? Status() : data_loss("a report that makes no sense");
}

// Somebody is gone who had not called it: that ends it everywhere.
bool Leader::is_doomed(const Key& key, const Members& members) const {
  return std::ranges::any_of(gone_, [&](const auto& entry) {
    if (std::ranges::find(members, entry.first) == members.end()) return false;
    const auto bound = entry.second.bounds.find(key.group);
    return bound == entry.second.bounds.end() || key.number >= bound->second;
  });
}

void Leader::tell_group(const Members& members, const Message& message) {
  for (const int host : places(members)) tells_.push_back({host, message});
}

void Leader::fail(const Key& key, const Members& members, const Status& status) {
  waiting_.erase(key);
  tell_group(members, Fail{key, key.group == 0 ? Members() : members, status});
}

void Leader::end(const Status& cause) {
  if (std::exchange(over_, true)) return;
  inquiries_.clear();
  tell_group(all_, Abort{cause});
}

// ---- From the members ----

Status Leader::take(int host, const Message& message, TimePoint now) {
  if (over_) return {};
  return std::visit([&](const auto& kind) { return on(host, kind, now); }, message);
}

Status Leader::on(int host, const Announce& announce, TimePoint) {
  const bool room = groups_.size() < kGroupsMost * hosts_.size();
  if (announce.group == 0 || !is_group(announce.group, announce.members) || !room)
    return data_loss("a group that cannot be");
  const std::vector<int> hosts = places(announce.members);
  if (std::ranges::find(hosts, host) == hosts.end()) return data_loss("a group of others");
  const auto [made, fresh] = groups_.try_emplace(announce.group);
  if (!fresh) return {};
  made->second.members = announce.members;
  made->second.table.job = first_job_;
  made->second.wanted.job = job_;
  propose(announce.group, made->second);
  return {};
}

Status Leader::on(int host, const Gone& gone, TimePoint) {
  if (gone.rank < 0 || gone.rank >= static_cast<int>(all_.size()) ||
      home_[static_cast<size_t>(gone.rank)] != host)
    return data_loss("word of a rank that is not its own");
  if (!gone_.emplace(gone.rank, gone).second) return {};
  tell_group(all_, gone);
  std::erase_if(inquiries_,
                [&](const auto& entry) { return is_doomed(entry.first, entry.second.members); });
  return {};
}

Status Leader::on(int, const Abort& abort, TimePoint) {
  if (abort.cause.ok()) return data_loss("an end without a cause");
  end(abort.cause);
  return {};
}

Status Leader::on(int host, const Report& report, TimePoint now) {
  if (Status sound = check(host, report); !sound.ok()) return sound;
  const Members& members = members_of(report.key.group, report.members);
  if (is_doomed(report.key, members)) return {};
  if (report.reason == Reason::refusal) {
    inquiries_.erase(report.key);
    fail(report.key, members, report.status);
    return {};
  }
  if (report.reason == Reason::waiting) {
    compare(report, members);
    return {};
  }
  const bool open = inquiries_.contains(report.key);
  if (!open && report.reason == Reason::answer) return {};
  Inquiry& inquiry = inquire(report, now);
  inquiry.reports[host] = report;
  if (report.reason == Reason::answer) inquiry.answered.insert(host);
  if (report.reason == Reason::late) {
    if (inquiry.late.empty()) inquiry.first = report;
    inquiry.late.push_back(host);
  }
  if (report.reason == Reason::mismatch && inquiry.mismatch < 0) {
    inquiry.mismatch = host;
    inquiry.peer = report.peer;
  }
  if (is_answered(inquiry)) conclude(inquiries_.find(report.key));
  return {};
}

// ---- Inquiries ----

Leader::Inquiry& Leader::inquire(const Report& report, TimePoint now) {
  const auto [at, fresh] = inquiries_.try_emplace(report.key);
  Inquiry& inquiry = at->second;
  if (!fresh) return inquiry;
  inquiry.members = members_of(report.key.group, report.members);
  inquiry.first = report;
  inquiry.until = now + kHostsAnswer;
  tell_group(inquiry.members, Query{report.key, report.members});
  return inquiry;
}

bool Leader::is_answered(const Inquiry& inquiry) const {
  if (inquiry.mismatch >= 0 && inquiry.answered.contains(inquiry.peer)) return true;
  return std::ranges::all_of(places(inquiry.members), [&](int host) {
    return inquiry.answered.contains(host) || departed_.contains(host);
  });
}

void Leader::conclude(Inquiries::iterator at) {
  const Key key = at->first;
  const Inquiry inquiry = std::move(at->second);
  inquiries_.erase(at);
  const auto is = [&](int host, Phase phase) {
    const auto found = inquiry.reports.find(host);
    return found != inquiry.reports.end() && found->second.phase == phase;
  };
  const std::vector<int> hosts = places(inquiry.members);
  const bool failed_before = inquiry.mismatch >= 0 && is(inquiry.peer, Phase::over);
  const bool waited_for =
      (inquiry.mismatch >= 0 && !is(inquiry.mismatch, Phase::over)) ||
      std::ranges::any_of(inquiry.late, [&](int host) { return !is(host, Phase::over); });
  if (failed_before || !waited_for) return;
  std::vector<const Host*> silent;
  for (const int host : hosts)
    if (!inquiry.answered.contains(host) && !departed_.contains(host))
      silent.push_back(&hosts_[static_cast<size_t>(host)]);
  if (inquiry.mismatch >= 0 && is(inquiry.peer, Phase::started) &&
      inquiry.reports.at(inquiry.peer).agreement == inquiry.reports.at(inquiry.mismatch).agreement)
    return end(failures::lost(hosts_[static_cast<size_t>(inquiry.peer)],
                              data_loss("its data bears another agreement than its word")));
  if (const auto pair = differing(inquiry))
    return fail(key, inquiry.members,
                disagreement(inquiry.members, inquiry.reports.at(pair->first),
                             pair->second < 0 ? Report{} : inquiry.reports.at(pair->second)));
  if (std::ranges::any_of(hosts, [&](int host) { return is(host, Phase::refused); }))
    return fail(key, inquiry.members, lateness(inquiry, silent));
  if (!silent.empty()) return end(failures::silence(inquiry.first, *silent.front()));
  end(slowness(inquiry));
}

// All run it. A host that waits for a rank of its own keeps the others waiting; where there is
// none, whoever was late first knows for what.
Status Leader::slowness(const Inquiry& inquiry) const {
  const auto waits_at_home = [&](const auto& entry) {
    const auto& [host, report] = entry;
    return report.phase == Phase::started && report.waiting_for >= 0 &&
           home_[static_cast<size_t>(inquiry.members[static_cast<size_t>(report.waiting_for)])] ==
               host;
  };
  const auto own = std::ranges::find_if(inquiry.reports, waits_at_home);
  const bool found = own != inquiry.reports.end();
  const int host = found ? own->first : inquiry.late.front();
  Report late = inquiry.first;
  if (found) {
    late.waiting = own->second.waiting;
    late.waiting_for = own->second.waiting_for;
  }
  return failures::slowness(roster_, inquiry.members, late, hosts_[static_cast<size_t>(host)].name);
}

// Two hosts that are known to run different operations; -1: what the other one runs is not known.
std::optional<std::pair<int, int>> Leader::differing(const Inquiry& inquiry) const {
  if (inquiry.mismatch >= 0)
    return std::pair(inquiry.mismatch, inquiry.reports.contains(inquiry.peer) ? inquiry.peer : -1);
  int first = -1;
  for (const auto& [host, report] : inquiry.reports) {
    if (report.phase != Phase::started) continue;
    if (first < 0) first = host;
    if (report.agreement != inquiry.reports.at(first).agreement) return std::pair(first, host);
  }
  return std::nullopt;
}

// Hosts that disagree need not meet: by different strategies or roots they may wait for each other
// without a word, and so may those that wait for ranks of their own. So each that waits for long is
// compared with the first that did.
void Leader::compare(const Report& report, const Members& members) {
  if (report.phase != Phase::started && report.phase != Phase::gathering) return;
  const auto found = waiting_.find(report.key);
  if (found == waiting_.end()) return remember(report);
  Report& first = found->second.report;
  const bool runs = report.phase == Phase::started;
  const bool both_run = runs && first.phase == Phase::started;
  if (both_run && first.agreement == report.agreement) return;
  if (!both_run && first.signature == report.signature) {
    if (runs) first = report;
    return;
  }
  fail(report.key, members, disagreement(members, first, report));
}

void Leader::remember(const Report& report) {
  const auto older = [](const auto& a, const auto& b) { return a.second.since < b.second.since; };
  if (waiting_.size() >= kComparedMost) waiting_.erase(std::ranges::min_element(waiting_, older));
  waiting_.emplace(report.key, Compared{report, compared_++});
}

Status Leader::disagreement(const Members& members, const Report& one, const Report& other) const {
  return failures::disagreement(roster_, members, one.key.number, {one.rank, one.signature},
                                {other.rank, other.signature});
}

Status Leader::lateness(const Inquiry& inquiry, const std::vector<const Host*>& silent) const {
  std::set<int> missing;
  for (const auto& [host, report] : inquiry.reports)
    if (report.phase == Phase::refused)
      missing.insert(report.missing.begin(), report.missing.end());
  return failures::lateness(roster_, inquiry.members, inquiry.first,
                            {missing.begin(), missing.end()}, silent);
}

void Leader::departed(int host) {
  departed_.insert(host);
  std::vector<Key> answered;
  for (const auto& [key, inquiry] : inquiries_)
    if (is_answered(inquiry)) answered.push_back(key);
  for (const Key& key : answered)
    if (const auto at = inquiries_.find(key); at != inquiries_.end()) conclude(at);
  for (auto& [number, group] : groups_) adopt_if_fenced(number, group);
}

void Leader::expire(TimePoint now) {
  std::vector<Key> due;
  for (auto& [key, inquiry] : inquiries_) {
    if (inquiry.until > now) continue;
    const bool looked = std::exchange(inquiry.looking, true) && now <= inquiry.until + kLook;
    if (looked)
      due.push_back(key);
    else
      inquiry.until = now + kLook;
  }
  for (const Key& key : due)
    if (const auto at = inquiries_.find(key); at != inquiries_.end()) conclude(at);
}

std::optional<TimePoint> Leader::next_wake() const {
  std::optional<TimePoint> next;
  for (const auto& [key, inquiry] : inquiries_)
    if (!next || inquiry.until < *next) next = inquiry.until;
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

// One at a time; what is wanted meanwhile is proposed after it.
void Leader::propose(uint32_t number, Led& group) {
  if (group.proposing || group.table == group.wanted || over_) return;
  group.proposing = true;
  group.table = group.wanted;
  group.fences.clear();
  tell_group(group.members, Propose{number, number == 0 ? Members() : group.members,
                                    ++group.version, group.table});
}

Status Leader::on(int host, const Fence& fence, TimePoint) {
  const auto found = groups_.find(fence.group);
  if (found == groups_.end()) return data_loss("a fence of no group");
  Led& group = found->second;
  if (!group.proposing || fence.version != group.version)
    return data_loss("a fence that was not asked for");
  group.fences.emplace(host, fence.number);
  adopt_if_fenced(fence.group, group);
  return {};
}

void Leader::adopt_if_fenced(uint32_t number, Led& group) {
  if (!group.proposing) return;
  uint64_t from = 0;
  for (const int host : places(group.members)) {
    const auto fence = group.fences.find(host);
    if (fence != group.fences.end())
      from = std::max(from, fence->second);
    else if (!departed_.contains(host))
      return;
  }
  group.proposing = false;
  tell_group(group.members, Adopt{number, group.version, from});
  propose(number, group);
}

size_t Leader::pending() const {
  const auto changing =
      std::ranges::count_if(groups_, [](const auto& entry) { return entry.second.proposing; });
  return inquiries_.size() + static_cast<size_t>(changing);
}

}  // namespace tutti

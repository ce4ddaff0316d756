#include "daemon/membership/running_epoch.h"

#include <algorithm>

namespace tutti {
namespace {

constexpr Millis kSuspended{1'000};  // A deadline seen so late was slept through.

bool is_awaited(const RunningEpoch::Member& member) { return member.awaited.has_value(); }

}  // namespace

RunningEpoch::RunningEpoch(const v1::Roster& roster, std::optional<TimePoint> awaited)
    : number(roster.epoch()), secret(roster.secret()) {
  for (const v1::RosterRank& who : roster.ranks())
    members.push_back({.worker = 0, .who = who, .awaited = awaited, .was_here = false});
}

std::set<WorkerStream> RunningEpoch::workers() const {
  std::set<WorkerStream> workers;
  for (const Member& member : members)
    if (member.worker != 0) workers.insert(member.worker);
  return workers;
}

std::vector<uint32_t> RunningEpoch::ranks_of(WorkerStream worker) const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < members.size(); ++rank)
    if (members[rank].worker == worker) ranks.push_back(rank);
  return ranks;
}

bool RunningEpoch::has_unseen() const {
  return std::ranges::any_of(members, [](const Member& member) { return !member.was_here; });
}

bool RunningEpoch::is_left() const {
  return workers().empty() && std::ranges::none_of(members, is_awaited);
}

void RunningEpoch::await(const std::vector<uint32_t>& ranks, TimePoint until) {
  for (const uint32_t rank : ranks) {
    members[rank].worker = 0;
    members[rank].awaited = until;
  }
}

std::set<std::string> RunningEpoch::late_hosts(TimePoint now, Millis grace) {
  std::set<std::string> late;
  for (Member& member : members) {
    if (!is_awaited(member) || *member.awaited > now) continue;
    if (now - *member.awaited > std::max(grace / 2, kSuspended))
      member.awaited = now + grace;
    else
      late.insert(member.who.host());
  }
  return late;
}

void RunningEpoch::reattach(WorkerStream worker, const v1::Resume& resume) {
  for (Member& member : members)
    if (member.who.host() == resume.host()) member = {.worker = 0, .who = member.who};
  for (const uint32_t rank : resume.ranks())
    if (rank < members.size()) members[rank] = {.worker = worker, .who = members[rank].who};
}

TimePoint RunningEpoch::next_deadline() const {
  TimePoint soonest = TimePoint::max();
  for (const Member& member : members)
    soonest = std::min(soonest, member.awaited.value_or(TimePoint::max()));
  return soonest;
}

}  // namespace tutti

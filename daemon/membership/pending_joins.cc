#include "daemon/membership/pending_joins.h"

#include <algorithm>

#include "daemon/membership/roster_message.h"

namespace tutti {
namespace {

constexpr size_t kRanksNamedMax = 4;

std::string describe(const v1::JoinRank& join) {
  return "rank " + std::to_string(join.rank()) + " " + location_of(join);
}

}  // namespace

Status PendingJoins::check(const v1::JoinRank& join) const {
  const auto holder = by_rank_.find(join.rank());
  if (holder != by_rank_.end())
    return already_exists("rank " + std::to_string(join.rank()) + " of " + quoted(join.job()) +
                              " has joined already " + location_of(holder->second.join),
                          {static_cast<int>(join.rank()), holder->second.join.host()});
  for (const auto& [rank, pending] : by_rank_)
    if (pending.join.host() == join.host() && pending.join.address() != join.address())
      return failed_precondition("two workers of " + quoted(join.job()) + " call their host " +
                                     join.host() + " (" + pending.join.address() + " and " +
                                     join.address() + "); give each agent its own name with --host",
                                 {static_cast<int>(join.rank()), join.host()});
  return {};
}

void PendingJoins::remove(WorkerStream worker, uint32_t rank) {
  const auto found = by_rank_.find(rank);
  if (found != by_rank_.end() && found->second.worker == worker) by_rank_.erase(found);
}

void PendingJoins::remove(WorkerStream worker) {
  std::erase_if(by_rank_, [&](const auto& entry) { return entry.second.worker == worker; });
}

void PendingJoins::refuse_world_size(const PendingJoin& late, Effects& out) {
  std::string waiting;
  size_t named = 0;
  for (const auto& [rank, pending] : by_rank_)
    if (named++ < kRanksNamedMax) waiting += (waiting.empty() ? "" : ", ") + describe(pending.join);
  if (named > kRanksNamedMax) waiting += " and " + std::to_string(named - kRanksNamedMax) + " more";
  const Status status = failed_precondition(
      quoted(late.join.job()) + ": the ranks disagree on the world size: it is " +
          std::to_string(world_size()) + " for " + waiting + "; it is " +
          std::to_string(late.join.world_size()) + " for " + describe(late.join) +
          "; start all with the same",
      {static_cast<int>(late.join.rank()), late.join.host()});
  for (const auto& [rank, pending] : by_rank_) refuse(pending, status, out);
  refuse(late, status, out);
  by_rank_.clear();
}

std::set<uint32_t> PendingJoins::expire(TimePoint now, const Status& why, Effects& out) {
  std::set<uint32_t> ranks;
  std::erase_if(by_rank_, [&](const auto& entry) {
    if (entry.second.deadline > now) return false;
    refuse(entry.second, why, out);
    ranks.insert(entry.first);
    return true;
  });
  return ranks;
}

TimePoint PendingJoins::next_deadline() const {
  TimePoint soonest = TimePoint::max();
  for (const auto& [rank, pending] : by_rank_) soonest = std::min(soonest, pending.deadline);
  return soonest;
}

std::set<uint32_t> PendingJoins::missing() const {
  std::set<uint32_t> ranks;
  for (uint32_t rank = 0; rank < world_size(); ++rank)
    if (!contains(rank)) ranks.insert(ranks.end(), rank);
  return ranks;
}

void refuse(const PendingJoin& pending, const Status& why, Effects& out) {
  Effects::Message refusal{.to = pending.worker, .body = {}};
  v1::JoinRefused& refused = *refusal.body.mutable_refused();
  refused.set_job(pending.join.job());
  refused.set_rank(pending.join.rank());
  refused.set_number(pending.join.number());
  write_status(why, *refused.mutable_status());
  v1::RefusedJoin& known = out.refused.emplace_back();
  known.set_job(pending.join.job());
  known.set_rank(pending.join.rank());
  known.set_host(pending.join.host());
  known.mutable_owner()->set_uid(pending.join.pass().uid());
  known.mutable_owner()->set_subject(pending.join.pass().subject());
  *known.mutable_status() = refused.status();
  out.send.push_back(std::move(refusal));
}

}  // namespace tutti

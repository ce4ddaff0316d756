// What a Member hears of: ranks and hosts that are gone, the leader's words, the time.
#include <algorithm>

#include "daemon/group/member.h"
#include "daemon/group/verdicts.h"

namespace tutti {

// ---- Ranks that are gone ----

bool Member::is_gone(int rank) const {
  return std::ranges::find(departures_, rank) != departures_.end();
}

void Member::leave(int rank, const Status& cause) {
  if (is_gone(rank)) return;
  departures_.push_back(rank);
  if (!cause_.ok()) return;
  Gone gone{rank, cause, {}};
  for (const auto& [number, group] : groups_) {
    const std::optional<int> place = group->who.rank_of(rank);
    if (!place) continue;
    if (group->ranks.next(*place) > 0) gone.bounds[number] = group->ranks.next(*place);
    group->ranks.leave(*place);
    prune(*group);
  }
  tell(std::move(gone));
}

Status Member::on(const Gone& gone, TimePoint) {
  if (gone.rank < 0 || gone.rank >= static_cast<int>(roster_.ranks.size()))
    return data_loss("word of a rank that there is not");
  if (std::ranges::find(gone_, gone.rank, &Gone::rank) != gone_.end()) return {};
  if (!is_gone(gone.rank)) departures_.push_back(gone.rank);
  gone_.push_back(gone);
  for (const auto& [number, group] : groups_) bind(*group, gone_.size() - 1);
  return {};
}

void Member::bind(Group& group, size_t gone) {
  if (!group.who.rank_of(gone_[gone].rank)) return;
  const auto listed = gone_[gone].bounds.find(group.number);
  const uint64_t bound = listed == gone_[gone].bounds.end() ? 0 : listed->second;
  std::vector<std::pair<uint64_t, Signature>> doomed;
  for (auto at = group.operations.lower_bound(bound); at != group.operations.end(); ++at)
    if (at->second.phase != Operation::Phase::cancelled)
      doomed.emplace_back(at->first, at->second.agreed.signature);
  group.bounds.push_back({bound, gone});
  for (const auto& [number, signature] : doomed)
    end({group.number, number}, group, verdicts::absence(roster_, gone_[gone], signature, number));
}

// ---- From the leader ----

Status Member::take(const Message& message, TimePoint now) {
  if (!cause_.ok()) return {};
  return std::visit([&](const auto& kind) { return on(kind, now); }, message);
}

Status Member::on(const Query& query, TimePoint) {
  Group* const group = group_of(query.key.group, query.members);
  if (group == nullptr) return data_loss("a question about no group of ours");
  if (!is_over(*group, query.key.number))
    refuse(query.key, *group, group->operations[query.key.number]);
  tell(report(query.key, *group, Report::Reason::answer));
  return {};
}

Status Member::on(const Fail& fail, TimePoint) {
  Group* const group = group_of(fail.key.group, fail.members);
  if (group == nullptr || fail.status.ok()) return data_loss("a failure that cannot be");
  if (is_over(*group, fail.key.number)) return {};
  end(fail.key, *group, fail.status);
  if (group->ranks.passed() > fail.key.number) return {};
  group->failed.emplace(fail.key.number, fail.status);
  if (++failures_ > kFailedMost)
    abort(resource_exhausted("a rank of host " + hosts_[static_cast<size_t>(self_)].name + " is " +
                             std::to_string(kFailedMost) + " failed operations behind the others"));
  return {};
}

Status Member::on(const Propose& propose, TimePoint) {
  Group* const group = group_of(propose.group, propose.members);
  if (group == nullptr || group->proposed) return data_loss("a proposal out of order");
  group->proposed = propose;
  group->fence = group->started_to + rules_.fence_ahead;
  tell(Fence{propose.group, propose.version, group->fence});
  return {};
}

Status Member::on(const Adopt& adopt, TimePoint now) {
  const auto found = groups_.find(adopt.group);
  if (found == groups_.end()) return data_loss("a change of strategies for no group of ours");
  Group& group = *found->second;
  if (!group.proposed || group.proposed->version != adopt.version || adopt.from < group.fence)
    return data_loss("a change of strategies that was not proposed");
  group.tables[adopt.from] = std::move(group.proposed->table);
  group.proposed.reset();
  group.fence = std::numeric_limits<uint64_t>::max();
  start_what_can(group, now);
  return {};
}

Status Member::on(const Abort& abort, TimePoint) {
  if (abort.cause.ok()) return data_loss("an end without a cause");
  end_epoch(abort.cause);
  return {};
}

void Member::abort(const Status& cause) {
  if (!cause_.ok()) return;
  tell(Abort{cause});
  end_epoch(cause);
}

// A host whose ranks have all left may close its links, but not the leader, nor in the middle of an
// operation.
bool Member::lost(int host, const Status& why) {
  if (!cause_.ok()) return false;
  if (departures_.size() == roster_.ranks.size()) return host != 0;
  const Host& whose = hosts_[static_cast<size_t>(host)];
  const bool left = std::ranges::all_of(whose.ranks, [&](int rank) { return is_gone(rank); });
  if (left && host != 0 && !runs_with(host)) return true;
  abort(verdicts::lost(whose, why));
  return false;
}

// What has started is answered when the engine has let go of it: links may still send from the
// ranks' memory.
void Member::end_epoch(const Status& cause) {
  cause_ = cause;
  act(End{cause});
  for (const auto& [number, group] : groups_) {
    for (auto& [at, operation] : group->operations) {
      if (operation.phase == Operation::Phase::started) operation.end = cause;
      if (operation.phase >= Operation::Phase::started) continue;
      if (operation.agreed.rank >= 0) act(Answer{{number, at}, cause});
    }
    std::erase_if(group->operations, [](const auto& operation) {
      return operation.second.phase < Operation::Phase::started;
    });
    for (auto& [at, operation] : group->operations) operation.phase = Operation::Phase::cancelled;
    group->failed.clear();
  }
  failures_ = 0;
  wakes_.clear();
}

Report Member::report(const Key& key, const Group& group, Report::Reason reason) const {
  Report report;
  report.key = key;
  report.members = named(group);
  report.reason = reason;
  const auto found = group.operations.find(key.number);
  if (is_over(group, key.number)) {
    report.phase = Report::Phase::over;
    return report;
  }
  require(found != group.operations.end(), "who reports an operation has it");
  const Operation& operation = found->second;
  report.rank = operation.agreed.rank;
  report.signature = operation.agreed.signature;
  report.agreement = operation.agreement;
  report.timeout_ms = operation.timeout_ms;
  if (operation.phase == Operation::Phase::started) {
    report.phase = Report::Phase::started;
    if (reason == Report::Reason::late || reason == Report::Reason::answer)
      std::tie(report.waiting, report.waiting_for) = rules_.waiting(key);
  } else if (operation.phase == Operation::Phase::gathering) {
    report.phase = Report::Phase::gathering;
  } else {
    report.missing = operation.missing;
  }
  return report;
}

// ---- Deadlines ----

void Member::wake(const Key& key, Operation& operation, TimePoint when) {
  wakes_.erase({operation.wakes, key});
  operation.wakes = when;
  if (when != TimePoint::max()) wakes_.emplace(when, key);
}

std::optional<TimePoint> Member::next_wake() const {
  if (wakes_.empty()) return std::nullopt;
  return wakes_.begin()->first;
}

void Member::expire(TimePoint now) {
  while (!wakes_.empty() && wakes_.begin()->first <= now) overdue(Key(wakes_.begin()->second), now);
}

void Member::overdue(const Key& key, TimePoint now) {
  const Group& group = *groups_.at(key.group);
  Operation& operation = groups_.at(key.group)->operations.at(key.number);
  if (operation.phase == Operation::Phase::cancelled) {
    if (!std::exchange(operation.looking, true)) return wake(key, operation, now + kLook);
    return abort(Status(operation.end));
  }
  if (operation.late) return blame_leader(key, operation, now);
  if (now >= operation.deadline) return report_late(key, group, operation, now);
  wake(key, operation, operation.deadline);
  if (!std::exchange(operation.compared, true)) tell(report(key, group, Report::Reason::waiting));
}

void Member::report_late(const Key& key, const Group& group, Operation& operation, TimePoint now) {
  operation.late = true;
  refuse(key, group, operation);
  tell(report(key, group, Report::Reason::late));
  wake(key, operation, now + kLeaderAnswers);
}

void Member::blame_leader(const Key& key, Operation& operation, TimePoint now) {
  const bool looked = std::exchange(operation.looking, true) && now <= operation.wakes + kLook;
  if (!looked) return wake(key, operation, now + kLook);
  abort(verdicts::leader_silence(operation.agreed.signature, key.number, operation.timeout_ms,
                                 hosts_.front()));
}

}  // namespace tutti

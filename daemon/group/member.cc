#include "daemon/group/member.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "daemon/group/failures.h"

namespace tutti {
namespace {

Members all_ranks(const Roster& roster) {
  Members ranks(roster.ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

int size_class(const Signature& signature) {
  const uint64_t bytes = bytes_of(signature);
  return std::bit_width(bytes == 0 ? 0 : bytes - 1);
}

Member::Member(const Roster& roster, const std::vector<Host>& hosts, int self, MemberRules rules)
    : roster_(roster), hosts_(hosts), self_(self), rules_(std::move(rules)) {
  group_of(0, all_ranks(roster_));
}

// ---- Groups ----

// Null: not the group of this number, or one too many.
Member::Group* Member::group_of(uint32_t number, const Members& members) {
  const auto found = groups_.find(number);
  if (found != groups_.end()) {
    const bool same = number == 0 || found->second->who.members() == members;
    return same ? found->second.get() : nullptr;
  }
  if (!could_be_group(members, roster_.ranks.size())) return nullptr;
  if (groups_.size() >= 2 * kGroupsMost) return nullptr;
  auto made = std::make_unique<Group>(number, members, hosts_, self_);
  made->tables[0].job = rules_.job;
  Group& group = *(groups_[number] = std::move(made));
  for (size_t gone = 0; gone < gone_.size(); ++gone) bind(group, gone);
  for (const int rank : group.who.local_ranks())
    if (is_gone(group.who.members()[static_cast<size_t>(rank)])) group.ranks.leave(rank);
  return &group;
}

Members Member::named(const Group& group) {
  return group.number == 0 ? Members() : group.who.members();
}

Status Member::make(uint32_t number, const Members& members) {
  const bool known = groups_.contains(number);
  if (group_of(number, members) == nullptr)
    return resource_exhausted("sub-group: two groups have one number; list the ranks otherwise");
  if (!known && cause_.ok()) tell(Announce{number, members});
  return {};
}

const Communicator* Member::find(uint32_t group) const {
  const auto found = groups_.find(group);
  return found == groups_.end() ? nullptr : &found->second->who;
}

uint64_t Member::next(uint32_t group, int rank) const {
  return groups_.at(group)->ranks.next(rank);
}

// ---- Calls of local ranks ----

void Member::skip(uint32_t number, int rank, uint64_t next) {
  Group& group = *groups_.at(number);
  group.ranks.skip(rank, next);
  prune(group);
}

void Member::arrive(uint32_t number, int rank, const Call& call, TimePoint now) {
  Group& group = *groups_.at(number);
  const Key key{number, group.ranks.take(rank)};
  if (!cause_.ok()) return act(Answer{key, cause_});
  if (const std::optional<Status> known = verdict(key, group, call.signature)) {
    act(Answer{key, *known});
    return prune(group);
  }
  Operation& operation = group.operations[key.number];
  if (call.deadline < operation.deadline && !operation.late) {
    operation.deadline = call.deadline;
    operation.timeout_ms = call.timeout_ms;
    wake(key, operation, std::min(operation.wakes, call.deadline));
  }
  if (operation.agreed.rank < 0) compare_soon(key, group, operation, now);
  const Status refusal = match(key, group, operation, rank, call);
  if (operation.agreed.rank < 0) operation.agreed = {rank, canonical(call.signature)};
  if (!refusal.ok() && operation.phase == Operation::Phase::gathering)
    refuse_for(key, group, operation, refusal);
  start_what_can(group, now);
}

Status Member::match(const Key& key, const Group& group, const Operation& operation, int rank,
                     const Call& call) const {
  if (!call.invalid.ok()) return call.invalid;
  const Signature asked = canonical(call.signature);
  const Agreed& before = operation.agreed;
  if (before.rank < 0 || before.signature == asked) return {};
  return failures::disagreement(roster_, group.who.members(), key.number,
                                {before.rank, before.signature}, {rank, asked});
}

// Where it has not started, it never will.
void Member::refuse(const Key& key, const Group& group, Operation& operation) {
  if (operation.phase != Operation::Phase::gathering) return;
  operation.phase = Operation::Phase::refused;
  operation.missing = group.ranks.missing(key.number);
}

void Member::refuse_for(const Key& key, const Group& group, Operation& operation,
                        const Status& status) {
  refuse(key, group, operation);
  Report refusal = report(key, group, Report::Reason::refusal);
  refusal.status = status;
  tell(std::move(refusal));
}

void Member::start_what_can(Group& group, TimePoint now) {
  const uint64_t end = std::min(group.ranks.called_by_all(), group.fence);
  for (auto at = group.operations.lower_bound(group.started_to);
       at != group.operations.end() && at->first < end; ++at)
    if (at->second.phase == Operation::Phase::gathering) {
      const Key key{group.number, at->first};
      start(key, group, at->second);
      compare_soon(key, group, at->second, now);
    }
}

// Unless it is over by then.
void Member::compare_soon(const Key& key, const Group& group, Operation& operation, TimePoint now) {
  if (group.who.places().size() == 1) return;
  operation.compared = false;
  wake(key, operation, std::min(operation.deadline, now + kCompareAfter));
}

// From here on this host takes part in the operation, whatever else it hears.
void Member::start(const Key& key, Group& group, Operation& operation) {
  operation.phase = Operation::Phase::started;
  group.started_to = key.number + 1;
  while (group.tables.size() > 1 && std::next(group.tables.begin())->first <= key.number)
    group.tables.erase(group.tables.begin());
  const Signature& signature = operation.agreed.signature;
  const Strategies strategies = resolve(group, table_for(group, key.number), signature);
  operation.agreement = agreement_of(signature, strategies, rules_.slice_bytes, group.hash);
  act(Start{key, signature, strategies, operation.agreement});
}

void Member::finished(const Key& key, const Status& status) {
  Group& group = *groups_.at(key.group);
  const auto found = group.operations.find(key.number);
  require(found != group.operations.end(), "an operation ends once");
  if (found->second.phase != Operation::Phase::cancelled) {
    if (status.ok()) return complete(key, group, status);
    abort(status);  // It is cancelled by that.
  }
  complete(key, group, Status(found->second.end));
}

void Member::complete(const Key& key, Group& group, const Status& status) {
  const auto ended = group.operations.extract(key.number);
  wakes_.erase({ended.mapped().wakes, key});
  if (ended.mapped().agreed.rank >= 0) act(Answer{key, status});
}

void Member::mismatched(const Key& key, int host) {
  if (!cause_.ok()) return;
  const Group& group = *groups_.at(key.group);
  const auto found = groups_.at(key.group)->operations.find(key.number);
  if (found == group.operations.end() || found->second.phase != Operation::Phase::started ||
      found->second.mismatched)
    return;
  found->second.mismatched = true;
  Report told = report(key, group, Report::Reason::mismatch);
  told.peer = host;
  tell(std::move(told));
}

// ---- Verdicts ----

// What this host already knows to become of an operation that it has no part in yet.
std::optional<Status> Member::verdict(const Key& key, const Group& group,
                                      const Signature& signature) const {
  const auto failed = group.failed.find(key.number);
  if (failed != group.failed.end()) return failed->second;
  for (const Bound& bound : group.bounds)
    if (key.number >= bound.number)
      return failures::absence(roster_, gone_[bound.gone], signature, key.number);
  return std::nullopt;
}

bool Member::is_over(const Group& group, uint64_t number) const {
  const auto found = group.operations.find(number);
  if (found != group.operations.end()) return found->second.phase == Operation::Phase::cancelled;
  return number < group.ranks.passed() || group.failed.contains(number) ||
         std::ranges::any_of(group.bounds,
                             [&](const Bound& bound) { return number >= bound.number; });
}

bool Member::is_over(const Key& key) const {
  const auto found = groups_.find(key.group);
  return !cause_.ok() || (found != groups_.end() && is_over(*found->second, key.number));
}

bool Member::can_take(const Key& key) const {
  const auto found = groups_.find(key.group);
  if (!cause_.ok() || found == groups_.end()) return !cause_.ok();
  const auto operation = found->second->operations.find(key.number);
  const bool started = operation != found->second->operations.end() &&
                       operation->second.phase == Operation::Phase::started;
  return started || is_over(*found->second, key.number);
}

void Member::end(const Key& key, Group& group, const Status& status) {
  act(Cancel{key, status});
  const auto found = group.operations.find(key.number);
  if (found == group.operations.end()) return;
  Operation& operation = found->second;
  if (operation.phase != Operation::Phase::started) return complete(key, group, status);
  operation.phase = Operation::Phase::cancelled;
  operation.end = status;
  operation.looking = false;
  wake(key, operation, operation.deadline + kLettingGo);
}

void Member::prune(Group& group) {
  const auto end = group.failed.lower_bound(group.ranks.passed());
  failures_ -= static_cast<size_t>(std::distance(group.failed.begin(), end));
  group.failed.erase(group.failed.begin(), end);
}

// ---- Strategies ----

const StrategyTable& Member::table_for(const Group& group, uint64_t number) {
  return std::prev(group.tables.upper_bound(number))->second;
}

const StrategyTable& Member::table(uint32_t group) const {
  return table_for(*groups_.at(group), groups_.at(group)->started_to);
}

Strategies Member::resolve(uint32_t group, const Signature& signature) const {
  return resolve(*groups_.at(group), table(group), signature);
}

Strategies Member::resolve(const Group& group, const StrategyTable& table,
                           const Signature& signature) const {
  Strategies chosen = signature.strategies == Strategies{} ? table.job : signature.strategies;
  if (chosen.local.kind == StrategyKind::automatic) chosen.local = {StrategyKind::centralized};
  if (chosen.global.kind != StrategyKind::automatic) return chosen;
  chosen.global = chosen.local;
  // A barrier moves nothing, and one host has nobody to move to.
  if (group.who.places().size() == 1 || signature.collective == Collective::barrier) return chosen;
  const std::pair size{signature.collective, size_class(signature)};
  const auto measured = table.measured.find(size);
  if (measured != table.measured.end()) {
    chosen.global = measured->second;
    return chosen;
  }
  const auto [known, fresh] = group.automatic.try_emplace(size);
  if (fresh)
    known->second = rules_.automatic(
        size.first, size.second == 0 ? 0 : uint64_t{1} << std::min(size.second, 63), group.who);
  chosen.global = known->second;
  return chosen;
}

// Some started operation of a group with ranks of that host is not over.
bool Member::runs_with(int host) const {
  return std::ranges::any_of(groups_, [&](const auto& entry) {
    const auto started = [](const auto& operation) {
      return operation.second.phase == Operation::Phase::started;
    };
    return entry.second->who.is_on(host) && std::ranges::any_of(entry.second->operations, started);
  });
}

size_t Member::pending() const {
  size_t sum = failures_;
  for (const auto& [number, group] : groups_) sum += group->operations.size();
  return sum;
}

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
    end({group.number, number}, group, failures::absence(roster_, gone_[gone], signature, number));
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
  abort(failures::lost(whose, why));
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
  abort(failures::leader_silence(operation.agreed.signature, key.number, operation.timeout_ms,
                                 hosts_.front()));
}

}  // namespace tutti

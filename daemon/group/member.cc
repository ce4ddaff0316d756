#include "daemon/group/member.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "daemon/group/failures.h"
#include "daemon/nccl/nccl.h"

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

// Finds or makes the group. Null: the number has other members, the members are not valid, or there
// are too many groups.
Member::Group* Member::group_of(uint32_t number, const Members& members) {
  const auto found = groups_.find(number);
  if (found != groups_.end()) {
    const bool same = number == 0 || found->second->who.members() == members;
    return same ? found->second.get() : nullptr;
  }
  if (!could_be_group(members, roster_.ranks.size())) return nullptr;
  if (groups_.size() >= 2 * kGroupsMax) return nullptr;
  auto made = std::make_unique<Group>(number, members, hosts_, self_);
  made->tables[0].job = rules_.job;
  Group& group = *(groups_[number] = std::move(made));
  for (size_t gone = 0; gone < gone_.size(); ++gone) cut_off(group, gone);
  for (const int rank : group.who.local_ranks())
    if (is_gone(group.who.members()[static_cast<size_t>(rank)])) group.counts.leave(rank);
  return &group;
}

Members Member::named_members(const Group& group) {
  return group.number == 0 ? Members() : group.who.members();
}

Status Member::make_group(uint32_t number, const Members& members) {
  const bool known = groups_.contains(number);
  if (group_of(number, members) == nullptr)
    return resource_exhausted("sub-group: two groups have one number; list the ranks otherwise");
  if (!known && cause_.ok()) send_to_leader(Announce{number, members});
  return {};
}

const Communicator* Member::find(uint32_t group) const {
  const auto found = groups_.find(group);
  return found == groups_.end() ? nullptr : &found->second->who;
}

uint64_t Member::next(uint32_t group, int rank) const {
  return groups_.at(group)->counts.next(rank);
}

// ---- Calls of local ranks ----

void Member::on_call(uint32_t number, int rank, const Call& call, TimePoint now) {
  Group& group = *groups_.at(number);
  group.counts.skip_to(rank, call.number);
  prune_failures(group);
  const Key key{number, group.counts.count_call(rank)};
  if (!cause_.ok()) return emit(Complete{key, cause_});
  if (const std::optional<Status> known = known_failure(key, group, call.signature)) {
    emit(Complete{key, *known});
    return prune_failures(group);
  }
  Operation& operation = group.operations[key.number];
  if (call.deadline < operation.deadline && !operation.late) {
    operation.deadline = call.deadline;
    operation.timeout_ms = call.timeout_ms;
    set_timer(key, operation, std::min(operation.timer, call.deadline));
  }
  if (operation.first_call.rank < 0) compare_later(key, group, operation, now);
  const Status refusal = check_call(key, group, operation, rank, call);
  if (operation.first_call.rank < 0) operation.first_call = {rank, canonical(call.signature)};
  if (!refusal.ok() && operation.phase == Operation::Phase::gathering) {
    refuse(key, group, operation);
    Report told = report(key, group, Report::Reason::refusal);
    told.status = refusal;
    send_to_leader(std::move(told));
  }
  start_ready(group, now);
}

Status Member::check_call(const Key& key, const Group& group, const Operation& operation, int rank,
                          const Call& call) const {
  if (!call.invalid.ok()) return call.invalid;
  const Signature asked = canonical(call.signature);
  const FirstCall& first = operation.first_call;
  if (first.rank < 0 || first.signature == asked) return {};
  return failures::disagreement(roster_, group.who.members(), key.number,
                                {first.rank, first.signature}, {rank, asked});
}

void Member::refuse(const Key& key, const Group& group, Operation& operation) {
  if (operation.phase != Operation::Phase::gathering) return;
  operation.phase = Operation::Phase::refused;
  operation.missing = group.counts.missing_ranks(key.number);
}

void Member::start_ready(Group& group, TimePoint now) {
  const uint64_t end = std::min(group.counts.called_by_all(), group.fence);
  for (auto at = group.operations.lower_bound(group.started_to);
       at != group.operations.end() && at->first < end; ++at)
    if (at->second.phase == Operation::Phase::gathering) {
      const Key key{group.number, at->first};
      start(key, group, at->second);
      compare_later(key, group, at->second, now);
    }
}

void Member::compare_later(const Key& key, const Group& group, Operation& operation,
                           TimePoint now) {
  if (group.who.hosts().size() == 1) return;
  operation.compared = false;
  set_timer(key, operation, std::min(operation.deadline, now + kCompareAfter));
}

// From here on this host takes part in the operation, whatever messages arrive.
void Member::start(const Key& key, Group& group, Operation& operation) {
  operation.phase = Operation::Phase::started;
  group.started_to = key.number + 1;
  while (group.tables.size() > 1 && std::next(group.tables.begin())->first <= key.number)
    group.tables.erase(group.tables.begin());
  const Signature& signature = operation.first_call.signature;
  const StrategyTable& table = table_for(group, key.number);
  const Strategies strategies = resolve(group, table, signature);
  const bool by_nccl = goes_by_nccl(group, table, signature);
  operation.agreement =
      agreement_of(signature, strategies, rules_.slice_bytes, group.hash, by_nccl);
  emit(Start{key, signature, strategies, operation.agreement, by_nccl});
}

void Member::on_finished(const Key& key, const Status& status) {
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
  timers_.erase({ended.mapped().timer, key});
  if (ended.mapped().first_call.rank >= 0) emit(Complete{key, status});
}

void Member::on_mismatch(const Key& key, int host) {
  if (!cause_.ok()) return;
  const Group& group = *groups_.at(key.group);
  const auto found = groups_.at(key.group)->operations.find(key.number);
  if (found == group.operations.end() || found->second.phase != Operation::Phase::started ||
      found->second.mismatched)
    return;
  found->second.mismatched = true;
  Report told = report(key, group, Report::Reason::mismatch);
  told.peer = host;
  send_to_leader(std::move(told));
}

// ---- Failures ----

// The failure of an operation that was decided before a local rank called it.
std::optional<Status> Member::known_failure(const Key& key, const Group& group,
                                            const Signature& signature) const {
  const auto failed = group.failed.find(key.number);
  if (failed != group.failed.end()) return failed->second;
  for (const Cutoff& cutoff : group.cutoffs)
    if (key.number >= cutoff.number)
      return failures::absence(roster_, gone_[cutoff.gone], signature, key.number);
  return std::nullopt;
}

bool Member::is_over(const Group& group, uint64_t number) const {
  const auto found = group.operations.find(number);
  if (found != group.operations.end()) return found->second.phase == Operation::Phase::cancelled;
  return number < group.counts.called_by_present() || group.failed.contains(number) ||
         std::ranges::any_of(group.cutoffs,
                             [&](const Cutoff& cutoff) { return number >= cutoff.number; });
}

bool Member::is_over(const Key& key) const {
  const auto found = groups_.find(key.group);
  return !cause_.ok() || (found != groups_.end() && is_over(*found->second, key.number));
}

bool Member::is_running(const Key& key) const {
  const auto found = groups_.find(key.group);
  if (found == groups_.end()) return false;
  const auto operation = found->second->operations.find(key.number);
  return operation != found->second->operations.end() &&
         operation->second.phase == Operation::Phase::started;
}

void Member::fail(const Key& key, Group& group, const Status& status) {
  emit(Cancel{key, status});
  const auto found = group.operations.find(key.number);
  if (found == group.operations.end()) return;
  Operation& operation = found->second;
  if (operation.phase != Operation::Phase::started) return complete(key, group, status);
  operation.phase = Operation::Phase::cancelled;
  operation.end = status;
  operation.rechecking = false;
  set_timer(key, operation, operation.deadline + kReleaseTimeout);
}

void Member::prune_failures(Group& group) {
  const auto end = group.failed.lower_bound(group.counts.called_by_present());
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

Strategies Member::resolve(const Group& group, const StrategyTable& table,
                           const Signature& signature) const {
  Strategies chosen = signature.strategies == Strategies{} ? table.job : signature.strategies;
  if (chosen.local.kind == StrategyKind::automatic) chosen.local = {StrategyKind::centralized};
  if (chosen.global.kind != StrategyKind::automatic) return chosen;
  chosen.global = chosen.local;
  // A barrier moves nothing, and one host has nobody to move to.
  if (group.who.hosts().size() == 1 || signature.collective == Collective::barrier) return chosen;
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

// What NCCL would do otherwise goes by links.
bool Member::goes_by_nccl(const Group& group, const StrategyTable& table,
                          const Signature& signature) {
  return table.nccl && group.number == 0 && group.who.hosts().size() > 1 && signature.on_device &&
         signature.count != 0 &&
         nccl::supports(signature.collective, signature.dtype, signature.op);
}

// Whether a started operation of a group with ranks of that host has not ended.
bool Member::runs_with(int host) const {
  return std::ranges::any_of(groups_, [&](const auto& entry) {
    const auto started = [](const auto& operation) {
      return operation.second.phase == Operation::Phase::started;
    };
    return entry.second->who.has_host(host) &&
           std::ranges::any_of(entry.second->operations, started);
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
  RankGone gone{rank, cause, {}};
  for (const auto& [number, group] : groups_) {
    const std::optional<int> place = group->who.rank_of(rank);
    if (!place) continue;
    if (group->counts.next(*place) > 0) gone.calls[number] = group->counts.next(*place);
    group->counts.leave(*place);
    prune_failures(*group);
  }
  send_to_leader(std::move(gone));
}

Status Member::on(const RankGone& gone, TimePoint) {
  if (gone.rank < 0 || gone.rank >= static_cast<int>(roster_.ranks.size()))
    return data_loss("the departure of unknown rank " + std::to_string(gone.rank));
  if (std::ranges::find(gone_, gone.rank, &RankGone::rank) != gone_.end()) return {};
  if (!is_gone(gone.rank)) departures_.push_back(gone.rank);
  gone_.push_back(gone);
  for (const auto& [number, group] : groups_) cut_off(*group, gone_.size() - 1);
  return {};
}

void Member::cut_off(Group& group, size_t gone) {
  if (!group.who.rank_of(gone_[gone].rank)) return;
  const auto listed = gone_[gone].calls.find(group.number);
  const uint64_t bound = listed == gone_[gone].calls.end() ? 0 : listed->second;
  std::vector<std::pair<uint64_t, Signature>> failing;
  for (auto at = group.operations.lower_bound(bound); at != group.operations.end(); ++at)
    if (at->second.phase != Operation::Phase::cancelled)
      failing.emplace_back(at->first, at->second.first_call.signature);
  group.cutoffs.push_back({bound, gone});
  for (const auto& [number, signature] : failing)
    fail({group.number, number}, group, failures::absence(roster_, gone_[gone], signature, number));
}

// ---- From the leader ----

Status Member::on_message(const Message& message, TimePoint now) {
  if (!cause_.ok()) return {};
  return std::visit([&](const auto& kind) { return on(kind, now); }, message);
}

Status Member::on(const Query& query, TimePoint) {
  Group* const group = group_of(query.key.group, query.members);
  if (group == nullptr) return data_loss("a Query with an invalid group number or member list");
  if (!is_over(*group, query.key.number))
    refuse(query.key, *group, group->operations[query.key.number]);
  send_to_leader(report(query.key, *group, Report::Reason::answer));
  return {};
}

Status Member::on(const Fail& message, TimePoint) {
  Group* const group = group_of(message.key.group, message.members);
  if (group == nullptr) return data_loss("a Fail with an invalid group number or member list");
  if (message.status.ok()) return data_loss("a Fail without a cause");
  if (is_over(*group, message.key.number)) return {};
  fail(message.key, *group, message.status);
  if (group->counts.called_by_present() > message.key.number) return {};
  group->failed.emplace(message.key.number, message.status);
  if (++failures_ > kFailuresMax)
    abort(resource_exhausted("a rank of host " + hosts_[static_cast<size_t>(self_)].name + " is " +
                             std::to_string(kFailuresMax) +
                             " failed operations behind the others"));
  return {};
}

Status Member::on(const Propose& propose, TimePoint) {
  Group* const group = group_of(propose.group, propose.members);
  if (group == nullptr || group->proposed) return data_loss("a proposal out of order");
  group->proposed = propose;
  group->fence = group->started_to + rules_.fence_ahead;
  send_to_leader(Fence{propose.group, propose.version, group->fence});
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
  start_ready(group, now);
  return {};
}

Status Member::on(const Abort& abort, TimePoint) {
  if (abort.cause.ok()) return data_loss("an end without a cause");
  end_epoch(abort.cause);
  return {};
}

void Member::abort(const Status& cause) {
  if (!cause_.ok()) return;
  send_to_leader(Abort{cause});
  end_epoch(cause);
}

// A host whose ranks have all left may close its links, unless it leads or an operation with it is
// in progress.
bool Member::on_lost(int host, const Status& why) {
  if (!cause_.ok()) return false;
  if (departures_.size() == roster_.ranks.size()) return host != 0;
  const Host& whose = hosts_[static_cast<size_t>(host)];
  const bool left = std::ranges::all_of(whose.ranks, [&](int rank) { return is_gone(rank); });
  if (left && host != 0 && !runs_with(host)) return true;
  abort(failures::lost(whose, why));
  return false;
}

// Started operations complete when the engine has ended them, because links may still read the
// ranks' memory.
void Member::end_epoch(const Status& cause) {
  cause_ = cause;
  emit(EndEpoch{cause});
  for (const auto& [number, group] : groups_) {
    for (auto& [at, operation] : group->operations) {
      if (operation.phase == Operation::Phase::started) operation.end = cause;
      if (operation.phase >= Operation::Phase::started) continue;
      if (operation.first_call.rank >= 0) emit(Complete{{number, at}, cause});
    }
    std::erase_if(group->operations, [](const auto& operation) {
      return operation.second.phase < Operation::Phase::started;
    });
    for (auto& [at, operation] : group->operations) operation.phase = Operation::Phase::cancelled;
    group->failed.clear();
  }
  failures_ = 0;
  timers_.clear();
}

Report Member::report(const Key& key, const Group& group, Report::Reason reason) const {
  Report report;
  report.key = key;
  report.members = named_members(group);
  report.reason = reason;
  const auto found = group.operations.find(key.number);
  if (is_over(group, key.number)) {
    report.phase = Report::Phase::over;
    return report;
  }
  require(found != group.operations.end(), "a reported operation is known");
  const Operation& operation = found->second;
  report.rank = operation.first_call.rank;
  report.signature = operation.first_call.signature;
  report.agreement = operation.agreement;
  report.timeout_ms = operation.timeout_ms;
  if (operation.phase == Operation::Phase::started) {
    report.phase = Report::Phase::started;
    if (reason == Report::Reason::late || reason == Report::Reason::answer)
      std::tie(report.waiting, report.waiting_for) = rules_.blocker(key);
  } else if (operation.phase == Operation::Phase::gathering) {
    report.phase = Report::Phase::gathering;
  } else {
    report.missing = operation.missing;
  }
  return report;
}

// ---- Deadlines ----

void Member::set_timer(const Key& key, Operation& operation, TimePoint when) {
  timers_.erase({operation.timer, key});
  operation.timer = when;
  if (when != TimePoint::max()) timers_.emplace(when, key);
}

std::optional<TimePoint> Member::next_timer() const {
  if (timers_.empty()) return std::nullopt;
  return timers_.begin()->first;
}

void Member::on_time(TimePoint now) {
  while (!timers_.empty() && timers_.begin()->first <= now)
    on_timer(Key(timers_.begin()->second), now);
}

void Member::on_timer(const Key& key, TimePoint now) {
  const Group& group = *groups_.at(key.group);
  Operation& operation = groups_.at(key.group)->operations.at(key.number);
  if (operation.phase == Operation::Phase::cancelled) {
    if (!std::exchange(operation.rechecking, true))
      return set_timer(key, operation, now + kRecheck);
    return abort(Status(operation.end));
  }
  if (operation.late) return blame_leader(key, operation, now);
  if (now >= operation.deadline) return report_late(key, group, operation, now);
  set_timer(key, operation, operation.deadline);
  if (!std::exchange(operation.compared, true))
    send_to_leader(report(key, group, Report::Reason::waiting));
}

void Member::report_late(const Key& key, const Group& group, Operation& operation, TimePoint now) {
  operation.late = true;
  refuse(key, group, operation);
  send_to_leader(report(key, group, Report::Reason::late));
  set_timer(key, operation, now + kLeaderTimeout);
}

void Member::blame_leader(const Key& key, Operation& operation, TimePoint now) {
  const bool looked =
      std::exchange(operation.rechecking, true) && now <= operation.timer + kRecheck;
  if (!looked) return set_timer(key, operation, now + kRecheck);
  abort(failures::leader_silence(operation.first_call.signature, key.number, operation.timeout_ms,
                                 hosts_.front()));
}

}  // namespace tutti

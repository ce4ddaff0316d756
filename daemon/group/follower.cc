#include "daemon/group/follower.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "daemon/group/failures.h"

namespace tutti {
namespace {

Ranks all_ranks(const Roster& roster) {
  Ranks ranks(roster.ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Why the call cannot be part of the operation; OK: it can.
Status check_call(const Roster& roster, const FollowerGroup& group, uint64_t number, int rank,
                  const Follower::Call& call) {
  if (!call.invalid.ok()) return call.invalid;
  const Signature asked = canonical(call.signature);
  if (asked.reproducible && asked.on_device && !group.can_reproduce_on_gpus())
    return Status(
        Code::unimplemented,
        "reproducible reductions of GPU memory between hosts are for hosts with one rank each; "
        "copy the tensors to the host's memory first");
  const FollowerOperation::FirstCall& first = group.find(number)->first_call;
  if (first.rank < 0 || first.signature == asked) return {};
  return failures::disagreement(roster, group.who.members(), number, {first.rank, first.signature},
                                {rank, asked});
}

// Why the operation fails: `gone` of `all` had not called it.
Status absence(const Roster& roster, const std::vector<RankGone>& all, size_t gone,
               const Signature& signature, uint64_t number) {
  const auto first = std::ranges::find(all, all[gone].because_of, &RankGone::rank);
  return failures::absence(roster, all[gone], first == all.end() ? nullptr : &*first, signature,
                           number);
}

// From here on this host takes part in the operation, whatever messages arrive.
Start start(FollowerGroup& group, uint64_t number, FollowerOperation& operation,
            const FollowerRules& rules) {
  group.mark_started(number, operation);
  const Signature& signature = operation.first_call.signature;
  const StrategyTable& table = group.table(number);
  const Strategies strategies = group.resolve(table, signature, rules.automatic);
  const bool by_nccl = group.goes_by_nccl(table, signature);
  const Movement movement = movement_of(signature, strategies, group.who, rules.slice_bytes);
  operation.agreement =
      agreement_of(signature, strategies, movement.slice_bytes, group.hash, by_nccl, movement.raw);
  return {{group.id, number}, signature, strategies, operation.agreement, by_nccl, movement};
}

}  // namespace

int size_class(const Signature& signature) {
  const uint64_t bytes = bytes_of(signature);
  return std::bit_width(bytes == 0 ? 0 : bytes - 1);
}

Follower::Follower(const Roster& roster, const std::vector<Host>& hosts, int self,
                   FollowerRules rules)
    : roster_(roster), hosts_(hosts), self_(self), rules_(std::move(rules)) {
  group_of(0, all_ranks(roster_));
}

// ---- Groups ----

// Finds or makes the group. Null: the number has other members, the members are not valid, or there
// are too many groups.
FollowerGroup* Follower::group_of(uint32_t number, const Ranks& members) {
  const auto found = groups_.find(number);
  if (found != groups_.end()) {
    const bool same = number == 0 || found->second->who.members() == members;
    return same ? found->second.get() : nullptr;
  }
  if (!could_be_group(members, roster_.ranks.size())) return nullptr;
  if (groups_.size() >= 2 * kGroupsMax) return nullptr;
  auto made = std::make_unique<FollowerGroup>(number, members, hosts_, self_);
  made->tables[0].job = rules_.job;
  FollowerGroup& group = *(groups_[number] = std::move(made));
  for (size_t gone = 0; gone < gone_.size(); ++gone) cut_off(group, gone);
  for (const int rank : group.who.ranks_here())
    if (is_gone(group.who.members()[static_cast<size_t>(rank)])) group.counts.leave(rank);
  return &group;
}

Status Follower::make_group(uint32_t number, const Ranks& members) {
  const bool known = groups_.contains(number);
  if (group_of(number, members) == nullptr)
    return resource_exhausted("sub-group: two groups have one number; list the ranks otherwise");
  if (!known && cause_.ok()) send_to_leader(Announce{number, members});
  return {};
}

const Communicator* Follower::find(uint32_t group) const {
  const auto found = groups_.find(group);
  return found == groups_.end() ? nullptr : &found->second->who;
}

uint64_t Follower::next(uint32_t group, int rank) const {
  return groups_.at(group)->counts.next(rank);
}

// ---- Calls of local ranks ----

void Follower::on_call(uint32_t number, int rank, const Call& call, TimePoint now) {
  FollowerGroup& group = *groups_.at(number);
  group.counts.skip_to(rank, call.number);
  failures_ -= group.prune_failures();
  const EpochOp op{number, group.counts.count_call(rank)};
  if (!cause_.ok()) return static_cast<void>(actions_.emplace_back(Complete{op, cause_}));
  const int job_rank = group.who.members()[static_cast<size_t>(rank)];
  consequences_.on_call(job_rank, op);
  const Status* const failed = group.known_failure(op.number);
  const FollowerGroup::Cutoff* const cutoff = group.cutoff(op.number);
  if (failed != nullptr || cutoff != nullptr) {
    const Status end = failed != nullptr
                           ? *failed
                           : absence(roster_, gone_, cutoff->gone, call.signature, op.number);
    consequences_.on_end(job_rank, op, end);
    actions_.emplace_back(Complete{op, end});
    failures_ -= group.prune_failures();
    return;
  }
  Operation& operation = group.operations[op.number];
  if (call.deadline < operation.deadline && !operation.late) {
    operation.deadline = call.deadline;
    operation.timeout_ms = call.timeout_ms;
  }
  if (operation.first_call.rank < 0) compare_later(op, group, operation, now);
  if (!operation.late) set_timer(op, operation, std::min(operation.timer, operation.deadline));
  const Status refusal = check_call(roster_, group, op.number, rank, call);
  if (operation.first_call.rank < 0) operation.first_call = {rank, canonical(call.signature)};
  if (!refusal.ok() && operation.phase == Phase::gathering) {
    group.refuse(op.number, operation);
    Report told = group.report(op.number, Report::Reason::refusal, rules_.blocker);
    told.status = refusal;
    send_to_leader(std::move(told));
  }
  start_ready(group, now);
}

void Follower::start_ready(FollowerGroup& group, TimePoint now) {
  const uint64_t end = std::min(group.counts.called_by_all(), group.fence);
  for (auto at = group.operations.lower_bound(group.started_to);
       at != group.operations.end() && at->first < end; ++at) {
    auto& [number, operation] = *at;
    if (operation.phase != Phase::gathering) continue;
    const EpochOp op{group.id, number};
    actions_.emplace_back(start(group, number, operation, rules_));
    compare_later(op, group, operation, now);
  }
}

void Follower::compare_later(const EpochOp& op, const FollowerGroup& group, Operation& operation,
                             TimePoint now) {
  if (group.who.hosts().size() == 1) return;
  operation.compared = false;
  set_timer(op, operation, std::min(operation.deadline, now + kCompareAfter));
}

void Follower::on_finished(const EpochOp& op, const Status& status) {
  FollowerGroup& group = *groups_.at(op.group);
  const auto found = group.operations.find(op.number);
  require(found != group.operations.end(), "an operation ends once");
  if (found->second.phase != Phase::cancelled) {
    if (status.ok()) return complete(op, group, status);
    abort(status);  // It is cancelled by that.
  }
  complete(op, group, Status(found->second.end));
}

void Follower::complete(const EpochOp& op, FollowerGroup& group, const Status& status) {
  const auto ended = group.operations.extract(op.number);
  timers_.erase({ended.mapped().timer, op});
  if (!status.ok() || !consequences_.empty())
    for (const int rank : group.who.ranks_here())
      if (group.counts.next(rank) > op.number)
        consequences_.on_end(group.who.members()[static_cast<size_t>(rank)], op, status);
  if (ended.mapped().first_call.rank >= 0) actions_.emplace_back(Complete{op, status});
}

void Follower::on_mismatch(const EpochOp& op, int host) {
  if (!cause_.ok()) return;
  const FollowerGroup& group = *groups_.at(op.group);
  const auto found = groups_.at(op.group)->operations.find(op.number);
  if (found == group.operations.end() || found->second.phase != Phase::started ||
      found->second.mismatched)
    return;
  found->second.mismatched = true;
  Report told = group.report(op.number, Report::Reason::mismatch, rules_.blocker);
  told.peer = host;
  send_to_leader(std::move(told));
}

// ---- Failures ----

bool Follower::is_over(const EpochOp& op) const {
  const auto found = groups_.find(op.group);
  return !cause_.ok() || (found != groups_.end() && found->second->is_over(op.number));
}

bool Follower::is_running(const EpochOp& op) const {
  const auto found = groups_.find(op.group);
  return found != groups_.end() && found->second->is_running(op.number);
}

void Follower::fail(const EpochOp& op, FollowerGroup& group, const Status& status) {
  actions_.emplace_back(Cancel{op, status});
  const auto found = group.operations.find(op.number);
  if (found == group.operations.end()) return;
  Operation& operation = found->second;
  if (operation.phase != Phase::started) return complete(op, group, status);
  operation.phase = Phase::cancelled;
  operation.end = status;
  operation.rechecking = false;
  set_timer(op, operation, operation.deadline + kReleaseTimeout);
}

// ---- Strategies ----

const StrategyTable& Follower::table(uint32_t group) const {
  return groups_.at(group)->table(groups_.at(group)->started_to);
}

size_t Follower::pending() const {
  size_t sum = failures_;
  for (const auto& [number, group] : groups_) sum += group->operations.size();
  return sum;
}

// ---- Ranks that are gone ----

bool Follower::is_gone(int rank) const {
  return std::ranges::find(departures_, rank, &Departure::rank) != departures_.end();
}

void Follower::leave(int rank, const Status& cause, TimePoint now) {
  if (is_gone(rank)) return;
  departures_.push_back({rank, cause, now});
  if (!cause_.ok()) return;
  RankGone gone{rank, cause, {}, consequences_.cause_of(rank)};
  for (const auto& [number, group] : groups_) {
    const std::optional<int> place = group->who.rank_of(rank);
    if (!place) continue;
    if (group->counts.next(*place) > 0) gone.calls[number] = group->counts.next(*place);
    group->counts.leave(*place);
    failures_ -= group->prune_failures();
  }
  send_to_leader(std::move(gone));
}

Status Follower::on(const RankGone& gone, TimePoint now) {
  if (gone.rank < 0 || gone.rank >= static_cast<int>(roster_.ranks.size()))
    return data_loss("the departure of unknown rank " + std::to_string(gone.rank));
  if (std::ranges::find(gone_, gone.rank, &RankGone::rank) != gone_.end()) return {};
  if (!is_gone(gone.rank)) departures_.push_back({gone.rank, gone.cause, now});
  gone_.push_back(gone);
  for (const auto& [number, group] : groups_) cut_off(*group, gone_.size() - 1);
  return {};
}

void Follower::cut_off(FollowerGroup& group, size_t gone) {
  if (!group.who.rank_of(gone_[gone].rank)) return;
  const auto listed = gone_[gone].calls.find(group.id);
  const uint64_t bound = listed == gone_[gone].calls.end() ? 0 : listed->second;
  for (const auto& [number, signature] : group.cut_off(bound, gone))
    fail({group.id, number}, group, absence(roster_, gone_, gone, signature, number));
}

// ---- From the leader ----

Status Follower::on_message(const Message& message, TimePoint now) {
  if (!cause_.ok()) return {};
  return std::visit([&](const auto& kind) { return on(kind, now); }, message);
}

Status Follower::on(const Query& query, TimePoint) {
  FollowerGroup* const group = group_of(query.op.group, query.members);
  if (group == nullptr) return data_loss("a Query with an invalid group number or list of ranks");
  if (!group->is_over(query.op.number))
    group->refuse(query.op.number, group->operations[query.op.number]);
  send_to_leader(group->report(query.op.number, Report::Reason::answer, rules_.blocker));
  return {};
}

Status Follower::on(const Fail& message, TimePoint) {
  FollowerGroup* const group = group_of(message.op.group, message.members);
  if (group == nullptr) return data_loss("a Fail with an invalid group number or list of ranks");
  if (message.status.ok()) return data_loss("a Fail without a cause");
  if (group->is_over(message.op.number)) return {};
  fail(message.op, *group, message.status);
  if (group->counts.called_by_present() > message.op.number) return {};
  group->failed.emplace(message.op.number, message.status);
  if (++failures_ > kFailuresMax)
    abort(resource_exhausted("a rank of host " + hosts_[static_cast<size_t>(self_)].name + " is " +
                             std::to_string(kFailuresMax) +
                             " failed operations behind the others"));
  return {};
}

Status Follower::on(const Propose& propose, TimePoint) {
  FollowerGroup* const group = group_of(propose.group, propose.members);
  if (group == nullptr || group->proposed) return data_loss("a proposal out of order");
  group->proposed = propose;
  group->fence = group->started_to + rules_.fence_ahead;
  send_to_leader(Fence{propose.group, propose.version, group->fence});
  return {};
}

Status Follower::on(const Adopt& adopt, TimePoint now) {
  const auto found = groups_.find(adopt.group);
  if (found == groups_.end()) return data_loss("a change of strategies for no group of ours");
  FollowerGroup& group = *found->second;
  if (!group.proposed || group.proposed->version != adopt.version || adopt.from < group.fence)
    return data_loss("a change of strategies that was not proposed");
  group.tables[adopt.from] = std::move(group.proposed->table);
  group.proposed.reset();
  group.fence = std::numeric_limits<uint64_t>::max();
  start_ready(group, now);
  return {};
}

Status Follower::on(const Abort& abort, TimePoint) {
  if (abort.cause.ok()) return data_loss("an end without a cause");
  end_epoch(abort.cause);
  return {};
}

void Follower::abort(const Status& cause) {
  if (!cause_.ok()) return;
  send_to_leader(Abort{cause});
  end_epoch(cause);
}

// A host whose ranks have all left may close its links, unless it leads or an operation with it is
// in progress.
bool Follower::on_lost(int host, const Status& why) {
  if (!cause_.ok()) return false;
  if (departures_.size() == roster_.ranks.size()) return host != 0;
  const Host& whose = hosts_[static_cast<size_t>(host)];
  const bool left = std::ranges::all_of(whose.ranks, [&](int rank) { return is_gone(rank); });
  const bool runs = std::ranges::any_of(groups_, [&](const auto& group) {
    return group.second->who.has_host(host) && group.second->has_running();
  });
  if (left && host != 0 && !runs) return true;
  abort(failures::lost(whose, why));
  return false;
}

// Started operations complete when the engine has ended them, because links may still read the
// ranks' memory.
void Follower::end_epoch(const Status& cause) {
  cause_ = cause;
  actions_.emplace_back(EndEpoch{cause});
  for (const auto& [number, group] : groups_) {
    for (auto& [at, operation] : group->operations) {
      if (operation.phase == Phase::started) operation.end = cause;
      if (operation.phase >= Phase::started) continue;
      if (operation.first_call.rank >= 0) actions_.emplace_back(Complete{{number, at}, cause});
    }
    std::erase_if(group->operations,
                  [](const auto& operation) { return operation.second.phase < Phase::started; });
    for (auto& [at, operation] : group->operations) operation.phase = Phase::cancelled;
    group->failed.clear();
  }
  failures_ = 0;
  timers_.clear();
}

// ---- Deadlines ----

void Follower::set_timer(const EpochOp& op, Operation& operation, TimePoint when) {
  if (when == operation.timer) return;
  auto node = timers_.extract({operation.timer, op});
  operation.timer = when;
  if (when == TimePoint::max()) return;
  if (node.empty()) return static_cast<void>(timers_.emplace(when, op));
  node.value().first = when;
  timers_.insert(std::move(node));
}

std::optional<TimePoint> Follower::next_timer() const {
  if (timers_.empty()) return std::nullopt;
  return timers_.begin()->first;
}

void Follower::on_time(TimePoint now) {
  while (!timers_.empty() && timers_.begin()->first <= now)
    on_timer(EpochOp(timers_.begin()->second), now);
}

void Follower::on_timer(const EpochOp& op, TimePoint now) {
  const FollowerGroup& group = *groups_.at(op.group);
  Operation& operation = groups_.at(op.group)->operations.at(op.number);
  if (operation.phase == Phase::cancelled) {
    if (!std::exchange(operation.rechecking, true)) return set_timer(op, operation, now + kRecheck);
    return abort(Status(operation.end));
  }
  if (operation.late) return blame_leader(op, operation, now);
  if (now >= operation.deadline) return report_late(op, group, operation, now);
  set_timer(op, operation, operation.deadline);
  if (!std::exchange(operation.compared, true))
    send_to_leader(group.report(op.number, Report::Reason::waiting, rules_.blocker));
}

void Follower::report_late(const EpochOp& op, const FollowerGroup& group, Operation& operation,
                           TimePoint now) {
  operation.late = true;
  group.refuse(op.number, operation);
  send_to_leader(group.report(op.number, Report::Reason::late, rules_.blocker));
  set_timer(op, operation, now + kLeaderTimeout);
}

void Follower::blame_leader(const EpochOp& op, Operation& operation, TimePoint now) {
  const bool looked =
      std::exchange(operation.rechecking, true) && now <= operation.timer + kRecheck;
  if (!looked) return set_timer(op, operation, now + kRecheck);
  abort(failures::leader_silence(operation.first_call.signature, op.number, operation.timeout_ms,
                                 hosts_.front()));
}

}  // namespace tutti

#include "daemon/group/follower_group.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "daemon/group/movement.h"
#include "daemon/nccl/nccl.h"
#include "daemon/schedule/schedule.h"

namespace tutti {

FollowerGroup::FollowerGroup(uint32_t id, const Ranks& ranks, const std::vector<Host>& hosts,
                             int self)
    : id(id), who(ranks, hosts, self), counts(who), hash(hash_of(ranks)) {}

const FollowerOperation* FollowerGroup::find(uint64_t number) const {
  const auto found = operations.find(number);
  return found == operations.end() ? nullptr : &found->second;
}

bool FollowerGroup::is_running(uint64_t number) const {
  const Operation* const operation = find(number);
  return operation != nullptr && operation->phase == Phase::started;
}

bool FollowerGroup::has_running() const {
  return std::ranges::any_of(
      operations, [](const auto& operation) { return operation.second.phase == Phase::started; });
}

bool FollowerGroup::is_over(uint64_t number) const {
  if (const Operation* const operation = find(number)) return operation->phase == Phase::cancelled;
  return number < counts.called_by_present() || failed.contains(number) ||
         cutoff(number) != nullptr;
}

const Status* FollowerGroup::known_failure(uint64_t number) const {
  const auto found = failed.find(number);
  return found == failed.end() ? nullptr : &found->second;
}

const FollowerGroup::Cutoff* FollowerGroup::cutoff(uint64_t number) const {
  const auto found =
      std::ranges::find_if(cutoffs, [&](const Cutoff& cut) { return number >= cut.number; });
  return found == cutoffs.end() ? nullptr : &*found;
}

size_t FollowerGroup::prune_failures() {
  const auto end = failed.lower_bound(counts.called_by_present());
  const auto pruned = static_cast<size_t>(std::distance(failed.begin(), end));
  failed.erase(failed.begin(), end);
  return pruned;
}

void FollowerGroup::refuse(uint64_t number, Operation& operation) const {
  if (operation.phase != Phase::gathering) return;
  operation.phase = Phase::refused;
  operation.missing = counts.missing_ranks(number);
}

std::vector<std::pair<uint64_t, Signature>> FollowerGroup::cut_off(uint64_t bound, size_t gone) {
  std::vector<std::pair<uint64_t, Signature>> failing;
  for (auto at = operations.lower_bound(bound); at != operations.end(); ++at)
    if (at->second.phase != Phase::cancelled)
      failing.emplace_back(at->first, at->second.first_call.signature);
  cutoffs.push_back({bound, gone});
  return failing;
}

void FollowerGroup::mark_started(uint64_t number, Operation& operation) {
  operation.phase = Phase::started;
  started_to = number + 1;
  while (tables.size() > 1 && std::next(tables.begin())->first <= number)
    tables.erase(tables.begin());
}

Report FollowerGroup::report(uint64_t number, Report::Reason reason, const Blocker& blocker) const {
  Report report;
  report.op = {id, number};
  report.members = named_ranks();
  report.reason = reason;
  if (is_over(number)) {
    report.phase = Report::Phase::over;
    return report;
  }
  const Operation* const operation = find(number);
  require(operation != nullptr, "a reported operation is known");
  report.rank = operation->first_call.rank;
  report.signature = operation->first_call.signature;
  report.agreement = operation->agreement;
  report.timeout_ms = operation->timeout_ms;
  if (operation->phase == Phase::started) {
    report.phase = Report::Phase::started;
    if (reason == Report::Reason::late || reason == Report::Reason::answer)
      std::tie(report.waiting, report.waiting_for) = blocker(report.op);
  } else if (operation->phase == Phase::gathering) {
    report.phase = Report::Phase::gathering;
  } else {
    report.missing = operation->missing;
  }
  return report;
}

const StrategyTable& FollowerGroup::table(uint64_t number) const {
  return std::prev(tables.upper_bound(number))->second;
}

Strategies FollowerGroup::resolve(const StrategyTable& table, const Signature& signature,
                                  const Automatic& automatic) const {
  Strategies chosen = signature.strategies == Strategies{} ? table.job : signature.strategies;
  if (chosen.local.kind == StrategyKind::automatic) chosen.local = {StrategyKind::centralized};
  if (chosen.global.kind != StrategyKind::automatic) return chosen;
  chosen.global = chosen.local;
  // A barrier moves nothing, and one host has nobody to move to.
  if (who.hosts().size() == 1 || signature.collective == Collective::barrier) return chosen;
  chosen.global = automatic_for(signature, who, in_any_order(table, signature, automatic));
  return chosen;
}

Strategy FollowerGroup::in_any_order(const StrategyTable& table, const Signature& signature,
                                     const Automatic& automatic) const {
  const std::pair size{signature.collective, size_class(signature)};
  const auto measured = table.measured.find(size);
  if (measured != table.measured.end()) return measured->second;
  const auto [known, fresh] = automatic_.try_emplace(size);
  if (fresh)
    known->second =
        automatic(size.first, size.second == 0 ? 0 : uint64_t{1} << std::min(size.second, 63), who);
  return known->second;
}

bool FollowerGroup::can_reproduce_on_gpus() const {
  return who.hosts().size() == 1 || has_lone_ranks(who.topology());
}

// What NCCL would do otherwise goes by links.
bool FollowerGroup::goes_by_nccl(const StrategyTable& table, const Signature& signature) const {
  return table.nccl && id == 0 && who.hosts().size() > 1 && signature.on_device &&
         signature.count != 0 && !signature.reproducible &&
         nccl::supports(signature.collective, signature.dtype, signature.op);
}

}  // namespace tutti

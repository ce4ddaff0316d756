#include "daemon/group/matcher.h"

#include <algorithm>
#include <limits>

namespace tutti {
namespace {

std::string operation_name(const Signature& signature, uint64_t seq) {
  return std::string(name_of(signature.collective)) + " #" + std::to_string(seq);
}

}  // namespace

Result<Matcher::Group*> Matcher::group_of(const Arrival& arrival) {
  Group& group = groups_[arrival.group];
  if (group.members.empty()) {
    group.members = arrival.members;
    group.next_seq.resize(arrival.members.size());
  }
  const bool fits = arrival.rank >= 0 && arrival.rank < static_cast<int>(group.members.size());
  if (!fits || group.members != arrival.members)
    return invalid_argument("an arrival does not fit its group");
  return &group;
}

Result<std::optional<Verdict>> Matcher::arrive(const Arrival& arrival) {
  Result<Group*> found = group_of(arrival);
  if (!found.ok()) return found.status();
  Group& group = **found;
  group.next_seq[arrival.rank] = std::max(group.next_seq[arrival.rank], arrival.seq + 1);
  if (group.failed.contains(arrival.seq)) {
    std::erase_if(group.failed, [&](uint64_t seq) { return seq < passed_by_all(group); });
    return std::optional<Verdict>();
  }
  const Key key{arrival.group, arrival.seq};
  Pending& pending = pending_[key];
  if (!pending.arrived.emplace(arrival.rank, canonical(arrival.signature)).second)
    return invalid_argument("an arrival came twice");
  if (arrival.deadline < pending.deadline) {
    pending.deadline = arrival.deadline;
    pending.timeout_ms = arrival.timeout_ms;
  }
  if (!arrival.invalid.ok()) return std::optional(fail(key, group, arrival.invalid));
  if (pending.arrived.begin()->second != pending.arrived.at(arrival.rank) ||
      pending.arrived.rbegin()->second != pending.arrived.at(arrival.rank))
    return std::optional(fail(key, group, disagreement(key, group, pending, arrival.rank)));
  if (const std::optional<int> missing = first_gone(group, pending))
    return std::optional(fail(
        key, group, absence(key, group, pending, *missing, gone_.at(group.members[*missing]))));
  if (pending.arrived.size() < group.members.size()) return std::optional<Verdict>();
  return std::optional(start(key, group, pending.arrived.at(arrival.rank)));
}

Verdict Matcher::start(const Key& key, const Group& group, const Signature& signature) {
  Verdict verdict{key.first, key.second, group.members, {}, signature};
  pending_.erase(key);
  return verdict;
}

Verdict Matcher::fail(const Key& key, Group& group, Status status) {
  if (passed_by_all(group) <= key.second) group.failed.insert(key.second);
  Verdict verdict{key.first, key.second, group.members, std::move(status), {}};
  pending_.erase(key);
  return verdict;
}

// Every member that is still there has made its calls below this one.
uint64_t Matcher::passed_by_all(const Group& group) const {
  uint64_t passed = std::numeric_limits<uint64_t>::max();
  for (size_t rank = 0; rank < group.members.size(); ++rank)
    if (!gone_.contains(group.members[rank])) passed = std::min(passed, group.next_seq[rank]);
  return passed;
}

// A member that has not arrived and never will.
std::optional<int> Matcher::first_gone(const Group& group, const Pending& pending) const {
  for (int rank = 0; rank < static_cast<int>(group.members.size()); ++rank)
    if (!pending.arrived.contains(rank) && gone_.contains(group.members[rank])) return rank;
  return std::nullopt;
}

Status Matcher::disagreement(const Key& key, const Group& group, const Pending& pending,
                             int rank) const {
  const Signature& theirs = pending.arrived.at(rank);
  const auto other = std::ranges::find_if(
      pending.arrived, [&](const auto& entry) { return entry.second != theirs; });
  const auto describe = [&](int who, const Signature& signature) {
    return describe_rank(roster_, group.members[who]) + " asks for " + to_string(signature);
  };
  return failed_precondition("the ranks disagree at operation #" + std::to_string(key.second) +
                                 ": " + describe(other->first, other->second) + ", " +
                                 describe(rank, theirs) +
                                 "; all ranks must make the same calls in the same order",
                             {group.members[rank], roster_.ranks[group.members[rank]].host});
}

Status Matcher::absence(const Key& key, const Group& group, const Pending& pending, int rank,
                        const Status& cause) const {
  const int who = group.members[rank];
  return {cause.code(),
          cause.message() + " during " +
              operation_name(pending.arrived.begin()->second, key.second) +
              "; join again to form a new group",
          {who, roster_.ranks[who].host}};
}

Status Matcher::lateness(const Key& key, const Group& group, const Pending& pending) const {
  std::string missing;
  int first = -1;
  for (int rank = 0; rank < static_cast<int>(group.members.size()); ++rank) {
    if (pending.arrived.contains(rank)) continue;
    if (first < 0) first = group.members[rank];
    missing += (missing.empty() ? "" : ", ") + describe_rank(roster_, group.members[rank]);
  }
  return deadline_exceeded(operation_name(pending.arrived.begin()->second, key.second) +
                               " timed out after " + std::to_string(pending.timeout_ms) +
                               " ms: not called by " + missing,
                           {first, first < 0 ? "" : roster_.ranks[first].host});
}

std::vector<Verdict> Matcher::gone(int rank, const Status& cause) {
  gone_.emplace(rank, cause);
  std::vector<Key> doomed;
  for (const auto& [key, pending] : pending_)
    if (first_gone(groups_.at(key.first), pending)) doomed.push_back(key);
  std::vector<Verdict> verdicts;
  for (const Key& key : doomed) {
    Group& group = groups_.at(key.first);
    const Pending pending = pending_.at(key);
    const int missing = *first_gone(group, pending);
    verdicts.push_back(
        fail(key, group, absence(key, group, pending, missing, gone_.at(group.members[missing]))));
  }
  return verdicts;
}

std::vector<Verdict> Matcher::expire(TimePoint now) {
  std::vector<Key> late;
  for (const auto& [key, pending] : pending_)
    if (pending.deadline <= now) late.push_back(key);
  std::vector<Verdict> verdicts;
  for (const Key& key : late) {
    Group& group = groups_.at(key.first);
    verdicts.push_back(fail(key, group, lateness(key, group, pending_.at(key))));
  }
  return verdicts;
}

std::optional<TimePoint> Matcher::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [key, pending] : pending_)
    if (!next || pending.deadline < *next) next = pending.deadline;
  return next;
}

}  // namespace tutti

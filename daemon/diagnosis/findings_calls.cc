// Findings of what the ranks called: disagreement, ranks that are behind, failed operations.
#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

#include "daemon/base/status.h"
#include "daemon/diagnosis/findings.h"
#include "daemon/diagnosis/traced_operations.h"
#include "proto/types.h"

namespace tutti {
namespace {

constexpr double kPatienceSeconds = 1;

bool has_code(const v1::TracedOperation& operation, Code code) {
  return operation.ended() && operation.code() == static_cast<uint32_t>(code);
}

// The last operation of a group that any rank has called; and who has, with what.
struct Newest {
  EpochOp op;
  CallsByRank calls;
  std::vector<uint32_t> missing;  // Members that have not called it.
};

CallsByRank calls_of(const JobView& view, const EpochOp& op) {
  CallsByRank calls;
  for (const auto& [number, rank] : view.ranks)
    if (const auto call = rank.calls.find(op); call != rank.calls.end())
      calls[number] = call->second;
  return calls;
}

// Members that are known not to have called it.
std::vector<uint32_t> members_before(const JobView& view, const EpochOp& op) {
  std::vector<uint32_t> missing;
  const auto members = view.groups.find(op.group);
  if (members == view.groups.end()) return missing;
  for (const uint32_t member : members->second) {
    const auto rank = view.ranks.find(member);
    if (rank == view.ranks.end() || !rank->second.is_traced) continue;  // Not known.
    const auto next = rank->second.next.find(op.group);
    const bool has_called = next != rank->second.next.end();
    const bool is_unknown = !has_called && rank->second.is_cut;
    if (!is_unknown && (!has_called || next->second <= op.number)) missing.push_back(member);
  }
  return missing;
}

bool is_there(const JobView& view, const RankView& rank) {
  return rank.pid != 0 || !view.has_worker;  // Or was, in a job that is over.
}

// The rank is in the operation, as far as that is known.
bool is_in(const JobView& view, const RankView& rank, const v1::TracedOperation& call) {
  return is_there(view, rank) && !call.ended() && !view.channels.contains(call.group());
}

// The first operation of the group that somebody waits in, or that timed out, and that `counts`.
std::optional<Newest> first_awaited(const JobView& view, uint32_t group,
                                    const std::function<bool(const EpochOp&)>& counts) {
  std::set<EpochOp> awaited;
  for (const auto& [number, rank] : view.ranks)
    for (const auto& [op, call] : rank.calls) {
      if (op.group != group) continue;
      const bool late = is_there(view, rank) && has_code(*call, Code::deadline_exceeded);
      if (late || is_in(view, rank, *call)) awaited.insert(op);
    }
  const auto first = std::ranges::find_if(awaited, counts);
  if (first == awaited.end()) return std::nullopt;
  return Newest{*first, calls_of(view, *first), members_before(view, *first)};
}

// Else it is done, though a rank may not have asked, or it timed out.
bool is_open(const JobView& view, const EpochOp& op) {
  const bool done = std::ranges::any_of(view.hosts, [&](const auto& host) {
    const auto call = host.second.among_hosts.find(op);
    return call != host.second.among_hosts.end() && call->second->ended();
  });
  const auto calls = calls_of(view, op);
  return !done &&
         std::ranges::any_of(calls, [](const auto& call) { return !call.second->ended(); });
}

std::optional<Newest> newest_of(const JobView& view, uint32_t group) {
  std::optional<EpochOp> newest;
  for (const auto& [number, rank] : view.ranks)
    if (const auto next = rank.next.find(group); next != rank.next.end())
      newest = std::max(newest.value_or(EpochOp{group, 0}), EpochOp{group, next->second - 1});
  if (!newest) return std::nullopt;
  return Newest{*newest, calls_of(view, *newest), {}};
}

// Seconds between two calls of this rank, as a rule.
double usual_pause(const RankView& rank) {
  std::vector<uint64_t> begun;
  for (const auto& [op, call] : rank.calls) begun.push_back(call->begun_ns());
  std::ranges::sort(begun);
  std::vector<double> pauses;
  for (size_t i = 1; i < begun.size(); ++i)
    pauses.push_back(static_cast<double>(begun[i] - begun[i - 1]) / 1e9);
  return median(std::move(pauses));
}

// Seconds for which the longest of the callers has waited.
double longest_wait(const JobView& view, const Newest& operation) {
  double longest = 0;
  for (const auto& [rank, call] : operation.calls)
    longest = std::max(longest, view.seconds_since(view.ranks.at(rank).host, call->begun_ns()));
  return longest;
}

uint64_t next_call(const JobView& view, uint32_t group, uint32_t rank) {
  const auto known = view.ranks.find(rank);
  if (known == view.ranks.end()) return 0;
  const auto next = known->second.next.find(group);
  return next == known->second.next.end() ? 0 : next->second;
}

// The next call of the rank that has called most.
uint64_t furthest_call(const JobView& view, uint32_t group) {
  uint64_t most = 0;
  for (const auto& [number, rank] : view.ranks)
    most = std::max(most, next_call(view, group, number));
  return most;
}

std::string last_seen(const JobView& view, uint32_t rank) {
  const auto known = view.ranks.find(rank);
  if (known == view.ranks.end() || !known->second.seen_s) return "has called nothing yet";
  return "last seen " + describe_seconds(std::max(0.0, *known->second.seen_s)) + " ago";
}

bool is_patience_over(const JobView& view, const Newest& operation, uint32_t rank) {
  const auto known = view.ranks.find(rank);
  const double usual = known == view.ranks.end() ? 0 : usual_pause(known->second);
  return longest_wait(view, operation) > std::max(kPatienceSeconds, 2 * usual);
}

std::string behind_line(const JobView& view, uint32_t group, uint32_t rank) {
  const uint64_t count = furthest_call(view, group) - next_call(view, group, rank);
  return view.name_of(rank) + " is " + std::to_string(count) +
         (count == 1 ? " operation" : " operations") + " behind, " + last_seen(view, rank);
}

// As one word of a shell: it is copied from a terminal, and the job's user chose it.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (text.find_first_not_of(kPlain) == std::string::npos && !text.starts_with('-')) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

// What shows more of a rank that is stuck; empty: its process is gone.
std::string next_step(const JobView& view, uint32_t rank) {
  const auto known = view.ranks.find(rank);
  if (known == view.ranks.end() || known->second.pid == 0) return "";
  return "next: py-spy dump --pid " + std::to_string(known->second.pid) + " on host " +
         known->second.host + "; tutti trace " + shell_word(view.job);
}

// An operation that ranks wait in, and the members that hold it up, the slowest first.
struct HoldUp {
  Newest operation;
  std::vector<uint32_t> ranks;
};

Diagnosis describe_behind(const JobView& view, const HoldUp& hold_up) {
  const auto& [operation, slowest] = hold_up;
  Diagnosis found{.verdict = Verdict::behind,
                  .sentence = behind_line(view, operation.op.group, slowest.front())};
  std::vector<uint32_t> waiting;
  for (const auto& [rank, call] : operation.calls) waiting.push_back(rank);
  const v1::TracedOperation& call = *operation.calls.begin()->second;
  const bool over =
      std::ranges::all_of(operation.calls, [](const auto& entry) { return entry.second->ended(); });
  found.evidence.push_back(
      describe_ranks(waiting) + (over ? " waited in " : " in ") + describe(call) + " (" +
      signature_text(call) + ")" + (over ? ", which timed out " : " for ") +
      describe_seconds(longest_wait(view, operation)) + (over ? " after the call" : ""));
  for (size_t i = 1; i < std::min(slowest.size(), kEvidenceMax); ++i)
    found.evidence.push_back(behind_line(view, operation.op.group, slowest[i]));
  for (const OpenMessage& message : open_messages(view, slowest.front()))
    if (found.evidence.size() < kEvidenceMax) found.evidence.push_back(describe(view, message));
  const std::string next = next_step(view, slowest.front());
  if (!next.empty()) found.evidence.push_back(next);
  return found;
}

// The first rank whose call was refused.
std::optional<uint32_t> refused_of(const CallsByRank& calls) {
  const auto found =
      std::ranges::find_if(calls, [](const auto& entry) { return was_refused(*entry.second); });
  return found == calls.end() ? std::nullopt : std::optional(found->first);
}

Finding describe_disagreement(const JobView& view, const Newest& operation) {
  std::map<std::string, std::vector<uint32_t>> sides;
  for (const auto& [rank, call] : operation.calls) sides[signature_text(*call)].push_back(rank);
  const v1::TracedOperation& any = *operation.calls.begin()->second;
  Diagnosis found{.verdict = Verdict::disagreement};
  found.sentence = "ranks disagree on #" + std::to_string(any.number()) +
                   (any.group() == 0 ? "" : " of group " + std::to_string(any.group())) + ": ";
  std::string list;
  for (const auto& [signature, ranks] : sides) {
    list += (list.empty() ? "" : "; ") + describe_ranks(ranks) + " asked for " + signature;
    for (const uint32_t rank : ranks)
      if (found.evidence.size() < kEvidenceMax)
        found.evidence.push_back(view.name_of(rank) + ": " + signature);
  }
  // The other side may be on another host.
  const v1::Failure* told =
      told_failure(view, view.ranks.at(operation.calls.begin()->first).host, any);
  const bool is_one_sided = sides.size() == 1 && told != nullptr &&
                            told->status().code() == static_cast<int>(Code::failed_precondition);
  found.sentence = is_one_sided ? text_of(*told) : found.sentence + list;
  return found;
}

}  // namespace

bool has_untold_members(const JobView& view, uint32_t group) {
  const auto told = std::ranges::count_if(view.groups.at(group), [&](uint32_t member) {
    const auto rank = view.ranks.find(member);
    return rank != view.ranks.end() && rank->second.is_traced;
  });
  const auto size = view.group_sizes.find(group);
  return size != view.group_sizes.end() && told < int64_t{size->second};
}

Finding find_disagreement(const JobView& view) {
  for (const auto& [group, members] : view.groups) {
    const std::optional<Newest> newest = newest_of(view, group);
    if (!newest) continue;
    const bool failed = std::ranges::any_of(newest->calls, [](const auto& entry) {
      return has_code(*entry.second, Code::failed_precondition);
    });
    if (failed && !refused_of(newest->calls)) return describe_disagreement(view, *newest);
  }
  return std::nullopt;
}

namespace {

// By ranks that wait for others elsewhere, too, or by those alone that do not.
std::vector<HoldUp> hold_ups_by(const JobView& view, const Waits& waits, bool also_elsewhere) {
  std::vector<HoldUp> all;
  for (const auto& entry : view.groups) {
    const auto group = entry.first;
    if (view.channels.contains(group)) continue;
    const std::optional<Newest> awaited = first_awaited(
        view, group, [&](const EpochOp& op) { return !members_before(view, op).empty(); });
    if (!awaited) continue;
    std::vector<uint32_t> slowest = awaited->missing;
    if (!also_elsewhere)
      std::erase_if(slowest, [&](uint32_t rank) {
        const auto known = view.ranks.find(rank);
        return known != view.ranks.end() && waits.is_elsewhere(known->second, group);
      });
    std::ranges::stable_sort(slowest, {},
                             [&](uint32_t rank) { return next_call(view, group, rank); });
    if (!slowest.empty() && is_patience_over(view, *awaited, slowest.front()))
      all.push_back({*awaited, std::move(slowest)});
  }
  return all;
}

// A rank that waits elsewhere is held up itself. Where all do, they wait for each other.
std::vector<HoldUp> hold_ups(const JobView& view, const Waits& waits) {
  std::vector<HoldUp> all = hold_ups_by(view, waits, false);
  return all.empty() ? hold_ups_by(view, waits, true) : all;
}

// Who did not take part in an operation that failed elsewhere: has not called it, or never ended.
std::vector<uint32_t> absent_from(const JobView& view, const EpochOp& op) {
  std::vector<uint32_t> absent = members_before(view, op);
  if (!absent.empty()) return absent;
  for (const auto& [rank, call] : calls_of(view, op))
    if (!call->ended()) absent.push_back(rank);
  return absent;
}

}  // namespace

// A rank may be in several operations: shows the first that others have not called, if any.
Waits waits_of(const JobView& view) {
  Waits waits;
  for (const auto& [number, rank] : view.ranks)
    for (const auto& [op, call] : rank.calls) {
      if (!is_in(view, rank, *call)) continue;
      const auto [missing, is_new] = waits.missing.try_emplace(op);
      if (is_new) missing->second = members_before(view, op);
      const v1::TracedOperation*& shown = waits.calls[number];
      if (shown == nullptr || waits.missing.at(op_of(*shown)).empty()) shown = call;
    }
  return waits;
}

bool Waits::is_elsewhere(const RankView& rank, uint32_t group) const {
  return std::ranges::any_of(rank.calls, [&](const auto& entry) {
    const auto waited = missing.find(entry.first);
    return entry.first.group != group && !entry.second->ended() && waited != missing.end() &&
           !waited->second.empty();
  });
}

std::map<uint32_t, uint64_t> ranks_behind(const JobView& view) {
  std::map<uint32_t, uint64_t> behind;
  for (const HoldUp& hold_up : hold_ups(view, waits_of(view))) {
    const uint32_t group = hold_up.operation.op.group;
    const uint64_t furthest = furthest_call(view, group);
    for (const uint32_t rank : hold_up.ranks)
      behind[rank] = std::max(behind[rank], furthest - next_call(view, group, rank));
  }
  return behind;
}

Finding find_behind(const JobView& view) {
  const std::vector<HoldUp> all = hold_ups(view, waits_of(view));
  return all.empty() ? Finding() : describe_behind(view, all.front());
}

namespace {

// ", as host b does not tell"; empty: it is not known where those ranks are.
std::string describe_untold_hosts(const JobView& view, const std::set<uint32_t>& members) {
  std::set<std::string> hosts;
  for (const auto& [number, rank] : view.ranks)
    if (members.contains(number) && !rank.is_traced && !rank.host.empty()) hosts.insert(rank.host);
  std::string out;
  for (const std::string& host : hosts) out += (out.empty() ? ", as host " : ", ") + host;
  return out.empty() ? out : out + (hosts.size() == 1 ? " does not tell" : " do not tell");
}

}  // namespace

Finding find_unanswered(const JobView& view) {
  for (const auto& [group, members] : view.groups) {
    if (view.channels.contains(group) || !has_untold_members(view, group)) continue;
    const std::optional<Newest> awaited =
        first_awaited(view, group, [&](const EpochOp& op) { return is_open(view, op); });
    if (!awaited || !is_patience_over(view, *awaited, awaited->calls.begin()->first)) continue;
    std::vector<uint32_t> waiting;
    for (const auto& [rank, call] : awaited->calls) waiting.push_back(rank);
    return Diagnosis{.verdict = Verdict::unanswered,
                     .sentence = describe_ranks(waiting) + " called " +
                                 describe(*awaited->calls.begin()->second) + " " +
                                 describe_seconds(longest_wait(view, *awaited)) +
                                 " ago and wait; which ranks did not is not known" +
                                 describe_untold_hosts(view, members)};
  }
  return std::nullopt;
}

namespace {

Diagnosis describe_failure(const JobView& view, uint32_t rank, const v1::TracedOperation& last) {
  const EpochOp op = op_of(last);
  const std::string code(name_of(code_of(static_cast<int>(last.code()))));
  Diagnosis found{.verdict = Verdict::operation_failed};
  const CallsByRank calls = calls_of(view, op);
  const std::optional<uint32_t> refused = refused_of(calls);
  if (refused || has_code(last, Code::invalid_argument)) {  // Nobody's absence is the reason.
    found.sentence = "the call of " + (refused ? view.name_of(*refused) : "a rank") + " to " +
                     describe(last) + " was refused with " + code;
    for (const auto& [caller, call] : calls)
      if (found.evidence.size() < kEvidenceMax && !was_refused(*call))
        found.evidence.push_back(view.name_of(caller) + " called it: " + signature_text(*call));
    return found;
  }
  std::vector<uint32_t> absent;
  if (!view.channels.contains(op.group)) absent = absent_from(view, op);
  // Others may have left because of one that died.
  std::stable_partition(absent.begin(), absent.end(),
                        [&](uint32_t one) { return view.has_died(one); });
  const v1::Failure* told = told_failure(view, view.ranks.at(rank).host, last);
  if (told != nullptr && !is_blamed(*told, absent)) {
    found.sentence = text_of(*told);
    found.evidence = {view.name_of(rank) + " called it: " + signature_text(last)};
    return found;
  }
  if (told != nullptr)
    std::stable_partition(absent.begin(), absent.end(), [&](uint32_t one) {
      return static_cast<int>(one) == told->status().culprit_rank();
    });
  if (!absent.empty() && absent.size() < view.ranks.size()) {
    found.sentence = view.name_of(absent.front()) + " took no part in " + describe(last) +
                     ", which failed with " + code;
    found.evidence = {view.name_of(rank) + " called it: " + signature_text(last)};
    return found;
  }
  found.sentence =
      describe(view, rank, last) + " of " + view.name_of(rank) + " failed with " + code;
  found.evidence = {signature_text(last)};
  return found;
}

}  // namespace

// The first that failed speaks, because its rank's departure may have failed those of others.
Finding find_failed_operation(const JobView& view) {
  std::optional<uint32_t> first;
  double first_s = -1;
  for (const auto& [number, rank] : view.ranks) {
    if (rank.last_ended == nullptr || rank.last_ended->code() == 0) continue;
    if (has_code(*rank.last_ended, Code::cancelled)) continue;  // It left.
    const bool is_message = view.channels.contains(rank.last_ended->group());
    if (is_message && has_code(*rank.last_ended, Code::deadline_exceeded) && !view.is_over())
      continue;  // A program may go on without it.
    const double ago_s = view.seconds_since(rank.host, end_of(*rank.last_ended));
    if (ago_s <= first_s) continue;
    first_s = ago_s;
    first = number;
  }
  if (!first) return std::nullopt;
  return describe_failure(view, *first, *view.ranks.at(*first).last_ended);
}

}  // namespace tutti

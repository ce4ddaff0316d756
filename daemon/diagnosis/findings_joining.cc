// Findings of who is there: failed epochs, ranks that have not joined, jobs that ended.
#include <algorithm>

#include "daemon/base/status.h"
#include "daemon/diagnosis/findings.h"
#include "proto/board.h"

namespace tutti {
namespace {

constexpr std::string_view kFailed = "failed: ";

bool is_gone(const v1::WorkerReport& worker) { return worker.departures().ranks_size() != 0; }

// What rank 0's host says counts most: it decides.
const v1::WorkerReport* failed_worker(const JobView& view) {
  const v1::WorkerReport* found = nullptr;
  for (const v1::WorkerReport* worker : view.workers) {
    const bool failed = worker->state().starts_with(kFailed) ||
                        (worker->state() == "ended" && worker->departures().has_cause() &&
                         worker->departures().cause().code() != 0);
    if (failed && worker->epoch() + worker->departures().epoch() >= view.epoch &&
        (found == nullptr || worker->has_tuning()))
      found = worker;
  }
  return found;
}

std::string cause_of(const v1::WorkerReport& worker) {
  if (worker.departures().has_cause()) return worker.departures().cause().message();
  return worker.state().substr(kFailed.size());
}

bool any_joining(const JobView& view) {
  return std::ranges::any_of(view.ranks, [](const auto& entry) { return entry.second.is_joining; });
}

// The operation that a rank's departure failed, and that is the last of a rank which is there.
const v1::TracedOperation* unavailable_operation(const JobView& view) {
  for (const auto& [number, rank] : view.ranks)
    if (rank.last_ended != nullptr && rank.pid != 0 &&
        rank.last_ended->code() == static_cast<uint32_t>(Code::unavailable))
      return rank.last_ended;
  return nullptr;
}

Finding find_departed(const JobView& view) {
  const std::vector<uint32_t> gone = gone_ranks(view);
  const v1::TracedOperation* failed = unavailable_operation(view);
  if (gone.empty() || failed == nullptr) return std::nullopt;
  return Diagnosis{.verdict = Verdict::failed,
                   .sentence = view.name_of(gone.front()) + " is gone, and " + describe(*failed) +
                               ", which needed it, failed with UNAVAILABLE",
                   .evidence = {describe_ranks(gone) + " went, in this order"}};
}

// Ranks by the operations in which they are still: they wait for them, or data is under way.
std::map<EpochOp, std::vector<uint32_t>> open_operations(const JobView& view) {
  std::map<EpochOp, std::vector<uint32_t>> open;
  for (const auto& [number, rank] : view.ranks)
    for (const auto& [op, call] : rank.calls) {
      const auto moves = [&, &operation = op](const auto& host) {
        const auto moved = host.second.among_hosts.find(operation);
        return moved != host.second.among_hosts.end() && !moved->second->ended();
      };
      const bool waits = (call->flags() & kRequestBlocking) != 0;
      if (!call->ended() && (waits || std::ranges::any_of(view.hosts, moves)))
        open[op].push_back(number);
    }
  return open;
}

Diagnosis describe_cut_short(const JobView& view, const EpochOp& op,
                             const std::vector<uint32_t>& ranks) {
  const RankView& first = view.ranks.at(ranks.front());
  const v1::TracedOperation& call = *first.calls.at(op);
  return {.verdict = Verdict::failed,
          .sentence = "the job has ended in the midst of " + describe(call) + ", which began " +
                      describe_seconds(view.seconds_since(first.host, call.begun_ns())) + " ago",
          .evidence = {describe_ranks(ranks) + (ranks.size() == 1 ? " was" : " were") + " in it"}};
}

}  // namespace

Finding find_failed(const JobView& view) {
  if (any_joining(view)) return std::nullopt;  // They are past it.
  const v1::WorkerReport* worker = failed_worker(view);
  if (worker == nullptr) return find_departed(view);
  Diagnosis found{
      .verdict = Verdict::failed,
      .sentence = "epoch " + std::to_string(view.epoch) + " failed: " + cause_of(*worker)};
  std::string gone;
  for (const uint32_t rank : worker->departures().ranks())
    gone += (gone.empty() ? "" : ", then ") + view.name_of(rank);
  if (is_gone(*worker)) found.evidence.push_back("gone: " + gone);
  for (const auto& [number, rank] : view.ranks)
    if (rank.last_ended != nullptr && rank.last_ended->code() != 0)
      found.evidence.push_back(
          view.name_of(number) + ": its last operation, " + describe(*rank.last_ended) + ", was " +
          std::string(name_of(code_of(static_cast<int>(rank.last_ended->code())))));
  return found;
}

std::vector<uint32_t> gone_ranks(const JobView& view) {
  std::vector<uint32_t> ranks;
  for (const v1::WorkerReport* worker : view.workers)
    if (worker->departures().epoch() == view.epoch)
      for (const uint32_t rank : worker->departures().ranks())
        if (std::ranges::find(ranks, rank) == ranks.end()) ranks.push_back(rank);
  return ranks;
}

Finding find_not_joined(const JobView& view) {
  if (!any_joining(view)) return std::nullopt;
  std::vector<uint32_t> missing;
  std::vector<uint32_t> waiting;
  for (uint32_t rank = 0; rank < view.world_size; ++rank) {
    const auto known = view.ranks.find(rank);
    const bool joins = known != view.ranks.end() && known->second.is_joining;
    (joins ? waiting : missing).push_back(rank);
  }
  if (missing.empty()) return std::nullopt;  // The roster is on its way.
  double longest = 0;
  Diagnosis found{.verdict = Verdict::not_joined};
  for (const auto& [name, host] : view.hosts) {
    longest = std::max(longest, host.joining_s);
    std::vector<uint32_t> here;
    for (const uint32_t rank : waiting)
      if (view.ranks.at(rank).host == name) here.push_back(rank);
    if (!here.empty())
      found.evidence.push_back("host " + name + ": " + describe_ranks(here) + " joined, for " +
                               describe_seconds(host.joining_s));
  }
  found.sentence = describe_ranks(missing) + " of " + std::to_string(view.world_size) +
                   (missing.size() == 1 ? " has" : " have") + " not joined; the others wait for " +
                   describe_seconds(longest);
  return found;
}

Finding find_ended(const JobView& view) {
  const bool over = std::ranges::all_of(
      view.workers, [](const auto* worker) { return worker->state() == "ended"; });
  if (!over) return std::nullopt;
  if (const auto open = open_operations(view); !open.empty())
    return describe_cut_short(view, open.begin()->first, open.begin()->second);
  return Diagnosis{.verdict = Verdict::ended,
                   .sentence = "the job has ended; the last operation of each rank ended OK"};
}

}  // namespace tutti

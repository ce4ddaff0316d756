// Findings of who is there: failed epochs, ranks that have not joined, jobs that ended.
#include <algorithm>
#include <limits>

#include "daemon/base/status.h"
#include "daemon/diagnosis/findings.h"
#include "proto/board.h"

namespace tutti {
namespace {

constexpr std::string_view kFailed = "failed: ";
constexpr double kRefusedBeforeS = 60;
constexpr double kSameFailureS = 2;  // Hosts learn of one within so much, by their clocks.
constexpr double kWaitSeconds = 1;   // Less is not worth a word.
constexpr double kFirstMs = 50;      // Ranks that die within so much may have been ended together.
constexpr double kWordMs = 200;      // Hosts learn of another's deaths within so much.

// Where to see whether the kernel killed for lack of memory.
std::string memory_hint(const std::string& host) {
  return "dmesg on host " + host + ", and oom_kill in its cgroup's memory.events";
}

bool has_departures(const v1::WorkerReport& worker) {
  return worker.departures().ranks_size() != 0;
}

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

// "the coordinator refused host b 3 s ago: host b speaks protocol version 9, ...".
std::string describe_refusal(const v1::RefusedJoin& join) {
  return "the coordinator refused host " + join.host() + " " +
         describe_seconds(static_cast<double>(join.ago_ms()) / 1000) +
         " ago: " + join.status().message();
}

// Nobody could call anything, and nobody is left who may.
Finding find_never_begun(const JobView& view) {
  const v1::Failure* failed = failed_join(view);
  const bool has_begun = view.epoch != 0 || !view.ranks.empty();
  if (has_begun || (view.has_worker ? failed == nullptr : view.ended.empty())) return std::nullopt;
  Diagnosis found{.verdict = Verdict::not_joined,
                  .sentence = view.has_worker
                                  ? "no rank is there any more"
                                  : "the job has ended before all of its " +
                                        std::to_string(view.world_size) + " ranks had joined"};
  if (failed != nullptr) found.sentence += ": " + failed->status().message();
  for (const v1::RefusedJoin* join : view.refused)
    if (found.evidence.size() < kEvidenceMax) found.evidence.push_back(describe_refusal(*join));
  return found;
}

// Nothing is known of how it ended. The first one's end may be the cause of the others'.
std::string output_hint(const JobView& view) {
  const auto ago_s = [&](const v1::Departure& gone) {
    return view.seconds_ago(gone.host(), gone.time_ms());
  };
  const v1::Departure* first = nullptr;
  for (const auto& [number, rank] : view.ranks)
    if (view.has_died(number) && rank.departure->cause().message().ends_with(" died"))
      if (first == nullptr || ago_s(*rank.departure) > ago_s(*first)) first = rank.departure;
  if (first == nullptr) return "";
  return "next: what rank " + std::to_string(first->rank()) + " has printed; if it was killed, " +
         memory_hint(first->host());
}

void add_departures(const JobView& view, Diagnosis& found) {
  for (const auto& [number, rank] : view.ranks) {
    if (!view.has_died(number)) continue;
    if (found.evidence.size() < kEvidenceMax)
      found.evidence.push_back(rank.departure->cause().message() + ", " +
                               view.ago_text(rank.host, rank.departure->time_ms()));
  }
  if (const std::string hint = output_hint(view); !hint.empty()) found.evidence.push_back(hint);
}

std::string cause_of(const v1::WorkerReport& worker) {
  if (worker.departures().has_cause()) return worker.departures().cause().message();
  return worker.state().substr(kFailed.size());
}

bool any_joining(const JobView& view) {
  return std::ranges::any_of(view.ranks, [](const auto& entry) { return entry.second.is_joining; });
}

// A rank which is there, or was to the end, and whose last operation a rank's departure failed; the
// first that failed, because its rank's departure may have failed the others.
std::optional<uint32_t> unavailable_rank(const JobView& view) {
  constexpr uint64_t kMsNs = 1'000'000;
  std::optional<uint32_t> first;
  double first_s = -1;
  for (const auto& [number, rank] : view.ranks) {
    if (rank.last_ended == nullptr || (rank.pid == 0 && !view.is_over()) ||
        rank.last_ended->code() != static_cast<uint32_t>(Code::unavailable))
      continue;
    const double ago_s =
        view.seconds_ago(rank.host, static_cast<int64_t>(end_of(*rank.last_ended) / kMsNs));
    if (ago_s <= first_s) continue;
    first_s = ago_s;
    first = number;
  }
  return first;
}

// Others may have left before; who died is to blame, else who was needed. `gone` is not empty.
uint32_t first_to_blame(const JobView& view, const std::vector<uint32_t>& gone, uint32_t failed,
                        uint32_t group) {
  const auto dead = std::ranges::find_if(gone, [&](uint32_t rank) { return view.has_died(rank); });
  if (dead != gone.end()) return *dead;
  const auto members = view.groups.find(group);
  const auto needed = std::ranges::find_if(gone, [&](uint32_t rank) {
    return rank != failed && members != view.groups.end() && members->second.contains(rank);
  });
  return needed == gone.end() ? gone.front() : *needed;
}

// "all_reduce #7", "recv from rank 2 of rank 1".
std::string describe_of_rank(const JobView& view, uint32_t rank, const v1::TracedOperation& call) {
  const std::string text = describe(view, rank, call);
  return view.channels.contains(call.group()) ? text + " of rank " + std::to_string(rank) : text;
}

Finding find_departed(const JobView& view) {
  const std::vector<uint32_t> gone = gone_ranks(view);
  const std::optional<uint32_t> rank = unavailable_rank(view);
  if (gone.empty() || !rank) return std::nullopt;
  const v1::TracedOperation& failed = *view.ranks.at(*rank).last_ended;
  const v1::Failure* told = told_failure(view, view.ranks.at(*rank).host, failed);
  const uint32_t culprit = told != nullptr && is_blamed(*told, gone)
                               ? static_cast<uint32_t>(told->status().culprit_rank())
                               : first_to_blame(view, gone, *rank, failed.group());
  Diagnosis found{
      .verdict = Verdict::failed,
      .sentence = view.name_of(culprit) + " is gone, and " + describe_of_rank(view, *rank, failed) +
                  ", which needed it, failed with UNAVAILABLE",
      .evidence = {describe_ranks(gone) + (gone.size() == 1 ? " is" : " are") + " gone"}};
  if (told != nullptr && !is_blamed(*told, gone)) found.sentence = text_of(*told);
  add_departures(view, found);
  return found;
}

using OpenOperations = std::map<EpochOp, std::vector<uint32_t>>;

// Ranks by the operations in which they are still: they wait for them, or data is under way.
OpenOperations open_operations(const JobView& view) {
  OpenOperations open;
  for (const auto& [number, rank] : view.ranks)
    for (const auto& [op, call] : rank.calls) {
      const auto moves = [&, &operation = op](const auto& host) {
        const auto moved = host.second.among_hosts.find(operation);
        return moved != host.second.among_hosts.end() && !moved->second->ended();
      };
      const bool waits = (call->flags() & kRequestBlocking) != 0;
      const bool is_message =
          view.channels.contains(op.group);  // It may be one that is not needed.
      if (!call->ended() && (waits || (!is_message && std::ranges::any_of(view.hosts, moves))))
        open[op].push_back(number);
    }
  return open;
}

// A worker that a signal or an error has ended, and the job's ranks on its host with it.
Finding find_crashed(const JobView& view) {
  const auto crashed = std::ranges::find_if(
      view.ended, [](const auto& one) { return !one.job->worker_end().empty(); });
  if (crashed == view.ended.end()) return std::nullopt;
  const std::string epoch =
      view.epoch == 0 ? "" : "epoch " + std::to_string(view.epoch) + " failed: ";
  const v1::EndedJob& job = *crashed->job;
  Diagnosis found{.verdict = Verdict::failed,
                  .sentence = epoch + "the worker of host " + crashed->host + " (pid " +
                              std::to_string(job.last().pid()) + ") " + job.worker_end()};
  for (const auto& [op, ranks] : open_operations(view))
    if (found.evidence.size() < kEvidenceMax)
      found.evidence.push_back(
          describe_ranks(ranks) + (ranks.size() == 1 ? " was" : " were") + " in " +
          describe(view, ranks.front(), *view.ranks.at(ranks.front()).calls.at(op)));
  const std::string& end = job.worker_end();
  if (end == "is gone" || end.find("killed by signal 9") != std::string::npos)
    found.evidence.push_back("next: " + memory_hint(crashed->host));
  return found;
}

bool has_been_judged(const JobView& view) {
  return !view.ended.empty() && !view.ended.front().job->outcome().empty();
}

// Where nothing is kept of what the ranks called, and nobody has judged yet.
Finding judge_by_counts(const JobView& view) {
  if (has_been_judged(view)) return std::nullopt;
  const v1::Failure* told = told_failure(view);
  uint64_t failures = 0;
  for (const EndedOnHost& ended : view.ended) failures += ended.job->last().failures();
  if (failures == 0)
    return Diagnosis{.verdict = Verdict::ended,
                     .sentence = "the job has ended; what its ranks called last is not known"};
  return Diagnosis{.verdict = Verdict::failed,
                   .sentence = std::to_string(failures) + " operations of its ranks failed" +
                               (told == nullptr ? "" : ": " + text_of(*told))};
}

// What the agents found when the job ended; what the ranks called is not kept for as long.
Diagnosis as_judged_then(const JobView& view) {
  const auto nearest = std::ranges::max_element(
      view.ended, {}, [](const auto& one) { return weight_of(one.host, *one.job); });
  if (nearest->job->outcome() == "failed")
    return {.verdict = Verdict::failed, .sentence = nearest->job->sentence()};
  if (Finding judged = judge_by_counts(view)) return *std::move(judged);
  const v1::EndedJob& first = *view.ended.front().job;
  return {.verdict = Verdict::ended,
          .sentence =
              first.outcome() == "stopped" ? "the job was stopped on purpose" : first.sentence()};
}

// Refusals of the missing ranks, and of hosts whose ranks are not known, since the others wait or
// shortly before; the newest first.
std::vector<const v1::RefusedJoin*> refusals_of(const JobView& view,
                                                const std::vector<uint32_t>& missing,
                                                double waited_s) {
  std::vector<const v1::RefusedJoin*> found;
  for (const v1::RefusedJoin* join : view.refused) {
    const bool is_recent = static_cast<double>(join->ago_ms()) / 1000 <= waited_s + kRefusedBeforeS;
    const bool is_missing =
        join->rank() >= view.world_size || std::ranges::binary_search(missing, join->rank());
    if (is_recent && is_missing) found.push_back(join);
  }
  std::ranges::sort(found, {}, [](const auto* join) { return join->ago_ms(); });
  return found;
}

// "; before them rank 2 (host b, pid 7, left) had left": a launcher may have ended the others
// because of it. Empty: nobody had.
std::string left_before_text(const JobView& view, const std::vector<uint32_t>& died) {
  const auto ago_s = [&](uint32_t rank) {
    const v1::Departure& gone = *view.ranks.at(rank).departure;
    return view.seconds_ago(gone.host(), gone.time_ms());
  };
  double first_s = 0;
  for (const uint32_t rank : died) first_s = std::max(first_s, ago_s(rank));
  std::string text;
  for (const auto& [number, rank] : view.ranks)
    if (rank.departure != nullptr && !view.has_died(number) && ago_s(number) > first_s) {
      first_s = ago_s(number);
      text = "; before " + std::string(died.size() == 1 ? "it " : "them ") + view.name_of(number) +
             " had left";
    }
  return text;
}

// "rank 1 (host b, pid 7)", or "ranks 0, 3".
std::string describe_died(const JobView& view, const std::vector<uint32_t>& died) {
  const v1::Departure& gone = *view.ranks.at(died.front()).departure;
  if (died.size() > 1 || gone.pid() == 0) return describe_ranks(died);
  return describe_ranks(died) + " (host " + gone.host() + ", pid " + std::to_string(gone.pid()) +
         ")";
}

// Ranks that a signal or an error has ended.
std::vector<uint32_t> died_ranks(const JobView& view) {
  std::vector<uint32_t> died;
  for (const auto& [number, rank] : view.ranks)
    if (view.has_died(number)) died.push_back(number);
  return died;
}

// By how many ms at least each rank went after `first`, as far as hosts tell: by the clock of one,
// which learns at once of its own ranks alone.
std::map<uint32_t, double> leads_of(const JobView& view, const v1::Departure& first) {
  std::map<uint32_t, double> leads;
  for (const v1::WorkerReport* worker : view.workers) {
    if (worker->departures().epoch() != view.epoch) continue;
    const auto& gone = worker->departures().first();
    const auto learnt = std::ranges::find(gone, first.rank(), &v1::Departure::rank);
    if (learnt == gone.end()) continue;
    for (const v1::Departure& later : gone) {
      const double word_ms = later.host() == worker->pass().host() ? 0 : kWordMs;
      double& lead_ms = leads[later.rank()];
      lead_ms = std::max(lead_ms, static_cast<double>(later.time_ms()) -
                                      static_cast<double>(learnt->time_ms()) - word_ms);
    }
  }
  return leads;
}

// The first death that a host lists.
const v1::Departure* listed_death(const JobView& view) {
  for (const v1::WorkerReport* worker : view.workers)
    if (worker->departures().epoch() == view.epoch)
      for (const v1::Departure& gone : worker->departures().first())
        if (view.has_died(gone.rank())) return &gone;
  return nullptr;
}

// The rank that died clearly before the others, and how those followed; else all that died, for
// they may have been ended together.
struct Deaths {
  std::vector<uint32_t> culprits;
  std::string others;  // "; ranks 0, 2 died at least 340 ms later".
};

Deaths judge_deaths(const JobView& view) {
  const std::vector<uint32_t> died = died_ranks(view);
  const v1::Departure* first = listed_death(view);
  if (first == nullptr || died.size() < 2) return {died, ""};
  std::map<uint32_t, double> leads = leads_of(view, *first);
  double lead_ms = std::numeric_limits<double>::infinity();
  std::vector<uint32_t> others = died;
  std::erase(others, first->rank());
  for (const uint32_t rank : others) lead_ms = std::min(lead_ms, leads[rank]);
  if (lead_ms < kFirstMs) return {died, ""};
  return {{first->rank()},
          "; " + describe_ranks(others) + " died at least " + describe_seconds(lead_ms / 1000) +
              " later"};
}

// No operation is known to have needed them.
Diagnosis describe_deaths(const JobView& view, const Deaths& deaths) {
  Diagnosis found{.verdict = Verdict::failed,
                  .sentence = describe_died(view, deaths.culprits) +
                              " died without leaving the job" +
                              left_before_text(view, deaths.culprits) + deaths.others};
  add_departures(view, found);
  return found;
}

// Which operation the deaths cut short: where one rank is to blame, one that it was in.
OpenOperations::const_iterator cut_short(const OpenOperations& open, const Deaths& deaths) {
  return std::ranges::find_if(open, [&deaths](const auto& one) {
    return deaths.others.empty() || std::ranges::count(one.second, deaths.culprits.front()) != 0;
  });
}

// Names the rank that died first, if it was in the operation, or that alone died in it; several may
// have been ended together. Others have died later, of the error that they got.
Diagnosis describe_cut_short(const JobView& view, const EpochOp& op,
                             const std::vector<uint32_t>& ranks, const Deaths& deaths) {
  std::vector<uint32_t> died = deaths.culprits;
  std::erase_if(died, [&ranks](uint32_t rank) { return std::ranges::count(ranks, rank) == 0; });
  const RankView& first = view.ranks.at(ranks.front());
  const v1::TracedOperation& call = *first.calls.at(op);
  return {
      .verdict = Verdict::failed,
      .sentence = (died.size() == 1 ? describe_died(view, died) + " died" : "the job has ended") +
                  " in the midst of " + describe(view, ranks.front(), call) + ", which began " +
                  describe_seconds(view.seconds_since(first.host, call.begun_ns())) + " ago" +
                  deaths.others,
      .evidence = {describe_ranks(ranks) + (ranks.size() == 1 ? " was" : " were") + " in it"}};
}

}  // namespace

Finding find_failed(const JobView& view) {
  if (any_joining(view)) return std::nullopt;  // They are past it.
  if (Finding crashed = find_crashed(view)) return crashed;
  const v1::WorkerReport* worker = failed_worker(view);
  if (worker == nullptr) return find_departed(view);
  Diagnosis found{
      .verdict = Verdict::failed,
      .sentence = "epoch " + std::to_string(view.epoch) + " failed: " + cause_of(*worker)};
  std::string gone;
  for (const uint32_t rank : worker->departures().ranks())
    gone += (gone.empty() ? "" : ", ") + view.name_of(rank);
  if (has_departures(*worker)) found.evidence.push_back("gone: " + gone);
  for (const auto& [number, rank] : view.ranks)
    if (rank.last_ended != nullptr && rank.last_ended->code() != 0)
      found.evidence.push_back(
          view.name_of(number) + ": its last operation, " +
          describe(view, number, *rank.last_ended) + ", was " +
          std::string(name_of(code_of(static_cast<int>(rank.last_ended->code())))));
  return found;
}

const v1::Failure* failed_join(const JobView& view) {
  // That others have not joined may be the consequence of what refused one of them.
  const auto weight_of_join = [](const v1::Failure& failed) {
    const bool is_late = failed.status().code() == static_cast<int>(Code::deadline_exceeded);
    return std::pair(!is_late, failed.time_ms());
  };
  const v1::Failure* found = nullptr;
  for (const v1::WorkerReport* worker : view.workers)
    if (worker->has_failed_join() &&
        (found == nullptr || weight_of_join(worker->failed_join()) > weight_of_join(*found)))
      found = &worker->failed_join();
  return found;
}

namespace {

double seconds_since(const JobView& view, const v1::WorkerReport& worker) {
  constexpr uint64_t kMillisecondNs = 1'000'000;
  return view.seconds_since(
      worker.pass().host(),
      static_cast<uint64_t>(std::max<int64_t>(worker.failure().time_ms(), 0)) * kMillisecondNs);
}

// The workers whose newest failure is of the epoch.
std::vector<const v1::WorkerReport*> failed_workers(const JobView& view) {
  std::vector<const v1::WorkerReport*> failed;
  for (const v1::WorkerReport* worker : view.workers)
    if (worker->has_failure() && worker->failure().epoch() == view.epoch &&
        worker->failure().status().code() != static_cast<int>(Code::cancelled))
      failed.push_back(worker);
  return failed;
}

// The word of the host that is nearest to the cause.
const v1::Failure* nearest_of(const JobView& view,
                              const std::vector<const v1::WorkerReport*>& failed) {
  const auto nearness = [&](const v1::WorkerReport* worker) {
    const int culprit = worker->failure().status().culprit_rank();
    const bool has_died = culprit >= 0 && view.has_died(static_cast<uint32_t>(culprit));
    return std::pair(has_died ? 2 : culprit >= 0 ? 1 : 0, seconds_since(view, *worker));
  };
  const auto nearest = std::ranges::max_element(failed, {}, nearness);
  return nearest == failed.end() ? nullptr : &(*nearest)->failure();
}

}  // namespace

const v1::Failure* told_failure(const JobView& view) {
  std::vector<const v1::WorkerReport*> failed = failed_workers(view);
  double newest_s = std::numeric_limits<double>::infinity();
  for (const auto* worker : failed) newest_s = std::min(newest_s, seconds_since(view, *worker));
  std::erase_if(failed, [&](const auto* worker) {
    return seconds_since(view, *worker) > newest_s + kSameFailureS;
  });
  return nearest_of(view, failed);
}

// Each host's times go by its own clock.
const v1::Failure* told_failure(const JobView& view, const std::string& host,
                                const v1::TracedOperation& judged) {
  const double begun_s = view.seconds_since(host, judged.begun_ns());
  const double ended_s = view.seconds_since(host, end_of(judged));
  std::vector<const v1::WorkerReport*> failed = failed_workers(view);
  std::erase_if(failed, [&](const auto* worker) {
    const double ago_s = seconds_since(view, *worker);
    return worker->failure().status().code() != static_cast<int>(judged.code()) ||
           ago_s > begun_s + kSameFailureS || ago_s < ended_s - kSameFailureS;
  });
  return nearest_of(view, failed);
}

std::string text_of(const v1::Failure& failure) {
  const std::string& text = failure.status().message();
  return text.substr(0, text.find("; join again"));
}

bool is_blamed(const v1::Failure& failure, const std::vector<uint32_t>& ranks) {
  return std::ranges::any_of(ranks, [&](uint32_t rank) {
    return static_cast<int>(rank) == failure.status().culprit_rank();
  });
}

int weight_of(const std::string& host, const v1::EndedJob& job) {
  if (job.outcome() != "failed") return 0;
  if (!job.worker_end().empty()) return 3;
  for (const v1::Departure& gone : job.last().departures().first())
    if (gone.cause().code() != 0) return gone.host() == host ? 2 : 1;
  return 1;
}

std::vector<uint32_t> gone_ranks(const JobView& view) {
  std::vector<uint32_t> ranks;
  for (const v1::WorkerReport* worker : view.workers)
    if (worker->departures().epoch() == view.epoch)
      for (const uint32_t rank : worker->departures().ranks())
        if (std::ranges::find(ranks, rank) == ranks.end()) ranks.push_back(rank);
  return ranks;
}

namespace {

// The size of the epoch that ranks wait for, which may have fewer than the one before.
uint32_t awaited_size(const JobView& view) {
  uint32_t size = 0;
  for (const v1::WorkerReport* worker : view.workers)
    if (std::ranges::any_of(worker->ranks(), [](const auto& rank) { return rank.epoch() == 0; }))
      size = std::max(size, worker->world_size());
  return std::min(size, view.world_size);
}

// " for 3 s"; empty: they have just begun.
std::string waited_text(double seconds, const std::string& comma = "") {
  return seconds < kWaitSeconds ? "" : comma + " for " + describe_seconds(seconds);
}

}  // namespace

Finding find_not_joined(const JobView& view) {
  if (!any_joining(view)) return find_never_begun(view);
  const uint32_t size = awaited_size(view);
  std::vector<uint32_t> missing;
  std::vector<uint32_t> waiting;
  for (uint32_t rank = 0; rank < size; ++rank) {
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
      found.evidence.push_back("host " + name + ": " + describe_ranks(here) + " joined" +
                               waited_text(host.joining_s, ","));
  }
  found.sentence = describe_ranks(missing) + " of " + std::to_string(size) +
                   (missing.size() == 1 ? " has" : " have") + " not joined; the others wait" +
                   waited_text(longest);
  const std::vector<const v1::RefusedJoin*> refused = refusals_of(view, missing, longest);
  if (!view.lone.empty()) found.evidence.push_back(view.lone);
  if (!refused.empty()) found.sentence += "; " + describe_refusal(*refused[0]);
  for (size_t i = 1; i < refused.size() && found.evidence.size() < kEvidenceMax; ++i)
    found.evidence.push_back(describe_refusal(*refused[i]));
  return found;
}

// Nobody failed where somebody ended the job.
Finding find_stopped(const JobView& view) {
  const auto stopped =
      std::ranges::find(view.ended, "stopped", [](const auto& one) { return one.job->outcome(); });
  if (!view.is_over() || stopped == view.ended.end()) return std::nullopt;
  const v1::Departures& gone = stopped->job->last().departures();
  return Diagnosis{.verdict = Verdict::ended,
                   .sentence = gone.has_cause() ? "the job has ended: " + gone.cause().message()
                                                : "the job was stopped on purpose"};
}

Finding find_ended(const JobView& view) {
  const bool over = std::ranges::all_of(
      view.workers, [](const auto* worker) { return worker->state() == "ended"; });
  if (!over && !view.is_over()) return std::nullopt;
  std::vector<uint32_t> traced;
  for (const auto& [number, rank] : view.ranks)
    if (rank.is_traced) traced.push_back(number);
  Diagnosis found{.verdict = Verdict::ended,
                  .sentence = "the job has ended; the last operation of each rank ended OK"};
  if (traced.size() < view.world_size && !traced.empty())  // What the others called is not known.
    found.sentence =
        "the job has ended; the last operation of " + describe_ranks(traced) + " ended OK";
  const Deaths deaths = judge_deaths(view);
  const bool has_deaths = !deaths.culprits.empty();
  const OpenOperations open = open_operations(view);
  if (const auto cut = cut_short(open, deaths); cut != open.end())
    found = describe_cut_short(view, cut->first, cut->second, deaths);
  else if (!view.has_trace && !view.ended.empty() && (has_been_judged(view) || !has_deaths))
    found = as_judged_then(view);
  else if (has_deaths)
    return describe_deaths(view, deaths);
  else if (const v1::Failure* told = told_failure(view))
    found.sentence += "; one before had failed: " + text_of(*told);
  for (const auto& [host, job] : view.ended)
    if (found.evidence.size() < kEvidenceMax)
      found.evidence.push_back("host " + host + ": its worker ended " +
                               view.ago_text(host, job->time_ms()));
  add_departures(view, found);
  return found;
}

}  // namespace tutti

// Findings of speed: ranks that are late, data that does not move; and how a healthy job runs.
#include <algorithm>

#include "daemon/base/text.h"
#include "daemon/diagnosis/findings.h"

namespace tutti {
namespace {

constexpr double kLateSeconds = 0.02;  // Less is nobody's fault,
constexpr double kLateShare = 0.2;     // and so is less than this of the time between operations.
constexpr size_t kLateOperations = 8;  // From so many on a rank is late as a rule.
constexpr double kOverSeconds = 10;    // A job that has called nothing for so long, and for so
constexpr double kOverIntervals = 10;  // many times its usual pause, does something else now.
constexpr double kNetworkSeconds = 1;
constexpr double kRecentSeconds = 2;
constexpr double kQuietSeconds = 1;
constexpr size_t kMessagesNamed = 2;
constexpr double kPaceSeconds = 5;     // Over so many, and at least
constexpr size_t kPaceOperations = 3;  // so many, a job's pace is taken.
constexpr double kFallen = 2;          // Times slower than before: worth a word.

// ---- Lateness ----

// Operations of the job that all ranks have called.
std::map<EpochOp, CallsByRank> common_calls(const JobView& view) {
  std::map<EpochOp, CallsByRank> common;
  for (const auto& [number, rank] : view.ranks)
    for (const auto& [op, call] : rank.calls)
      if (op.group == 0) common[op][number] = call;
  std::erase_if(common, [&](const auto& entry) { return entry.second.size() < view.world_size; });
  return common;
}

// How much later each host's clock is than that of the first, in ns: operations among hosts end at
// about the same moment everywhere.
std::map<std::string, double> clock_offsets(const JobView& view) {
  std::map<std::string, double> offsets;
  const HostView* first = nullptr;
  for (const auto& [name, host] : view.hosts) {
    if (host.among_hosts.empty()) continue;
    if (first == nullptr) first = &host;
    std::vector<double> apart;
    for (const auto& [operation, call] : host.among_hosts) {
      const auto other = first->among_hosts.find(operation);
      if (other != first->among_hosts.end() && call->ended() && other->second->ended())
        apart.push_back(static_cast<double>(end_of(*call)) -
                        static_cast<double>(end_of(*other->second)));
    }
    offsets[name] = median(std::move(apart));
  }
  return offsets;
}

// How much later each rank called than the middle one of the others, in seconds.
std::map<uint32_t, double> delays_of(const JobView& view, const CallsByRank& calls,
                                     std::map<std::string, double>& offsets) {
  std::map<uint32_t, double> begun;
  for (const auto& [rank, call] : calls)
    begun[rank] = static_cast<double>(call->begun_ns()) - offsets[view.ranks.at(rank).host];
  std::vector<double> times;
  for (const auto& [rank, time] : begun) times.push_back(time);
  std::ranges::sort(times);
  const size_t middle = (times.size() - 1) / 2;  // Of one less.
  std::map<uint32_t, double> delays;
  for (const auto& [rank, own] : begun)
    delays[rank] = (own - (own <= times[middle] ? times[middle + 1] : times[middle])) / 1e9;
  return delays;
}

double usual_interval(const std::map<EpochOp, CallsByRank>& common) {
  std::vector<double> intervals;
  uint64_t before = 0;
  for (const auto& [op, calls] : common) {
    const uint64_t begun = calls.begin()->second->begun_ns();
    if (before != 0 && begun > before)
      intervals.push_back(static_cast<double>(begun - before) / 1e9);
    before = begun;
  }
  return median(std::move(intervals));
}

// ---- Idle, and running ----

// Seconds since any rank last called, or ended, an operation.
std::optional<double> quiet_seconds(const JobView& view) {
  std::optional<double> least;
  for (const auto& [number, rank] : view.ranks)
    if (rank.seen_s) least = std::min(least.value_or(*rank.seen_s), *rank.seen_s);
  return least;
}

size_t joined_ranks(const JobView& view) {
  return static_cast<size_t>(std::ranges::count_if(view.ranks, [](const auto& entry) {
    return entry.second.pid != 0 && !entry.second.is_joining;
  }));
}

std::string joined_text(const JobView& view) {
  const size_t joined = joined_ranks(view);
  if (joined == view.world_size) return "all " + std::to_string(joined) + " ranks have joined";
  return std::to_string(joined) + " of " + std::to_string(view.world_size) + " ranks are there";
}

// What is not known, where nothing bad is.
std::string untold_text(const JobView& view) {
  return view.silent.empty() ? "" : "; but " + view.silent.front();
}

// " 20 s ago".
std::string told_ago_text(const JobView& view, const v1::Failure& told) {
  for (const v1::WorkerReport* worker : view.workers)
    if (&worker->failure() == &told)
      return " " + view.ago_text(worker->pass().host(), told.time_ms());
  return "";
}

// Operations a second of a rank.
struct Pace {
  double now = 0;     // In the last seconds.
  double before = 0;  // In those before, as far back as they are known; 0: not far enough.
};

Pace pace_of(const JobView& view, const RankView& rank) {
  std::vector<double> ages;  // In seconds.
  for (const auto& [op, call] : rank.calls)
    ages.push_back(view.seconds_since(rank.host, call->begun_ns()));
  if (ages.empty()) return {};
  std::ranges::sort(ages);
  const double oldest = ages.back();
  const double span =
      std::min(oldest, std::max(kPaceSeconds, ages[std::min(kPaceOperations, ages.size()) - 1]));
  const auto recent = static_cast<double>(std::ranges::upper_bound(ages, span) - ages.begin());
  Pace pace{.now = span > 0 ? recent / span : 0};
  if (oldest - span >= kPaceSeconds)
    pace.before = (static_cast<double>(ages.size()) - recent) / (oldest - span);
  return pace;
}

}  // namespace

Lateness lateness_of(const JobView& view) {
  const std::map<EpochOp, CallsByRank> common = common_calls(view);
  Lateness lateness{.operations = common.size(), .interval = usual_interval(common)};
  if (view.world_size < 2) return lateness;
  std::map<std::string, double> offsets = clock_offsets(view);
  std::map<uint32_t, std::vector<double>> delays;
  for (const auto& [op, calls] : common)
    for (const auto& [rank, delay] : delays_of(view, calls, offsets)) delays[rank].push_back(delay);
  for (auto& [rank, list] : delays) lateness.seconds[rank] = median(std::move(list));
  return lateness;
}

bool Lateness::is_late(double by_s) const {
  return operations >= kLateOperations && by_s >= std::max(kLateSeconds, kLateShare * interval);
}

Finding find_late_rank(const JobView& view) {
  const Lateness lateness = lateness_of(view);
  const auto latest = std::ranges::max_element(lateness.seconds, {},
                                               [](const auto& entry) { return entry.second; });
  if (latest == lateness.seconds.end() || !lateness.is_late(latest->second)) return std::nullopt;
  const double quiet = quiet_seconds(view).value_or(0);
  if (quiet > std::max(kOverSeconds, kOverIntervals * lateness.interval)) return std::nullopt;
  return Diagnosis{
      .verdict = Verdict::late_rank,
      .sentence = "rank " + std::to_string(latest->first) + " is late by " +
                  describe_seconds(latest->second) + " in the median",
      .evidence = {
          view.name_of(latest->first) + ": in " + std::to_string(lateness.operations) +
              " operations, against the middle one of the other ranks",
          "operations come every " + describe_seconds(lateness.interval) + " in the median"}};
}

bool all_have_called(const JobView& view, const EpochOp& op) {
  const auto members = view.groups.find(op.group);
  const auto size = view.group_sizes.find(op.group);
  return members != view.groups.end() && size != view.group_sizes.end() &&
         members->second.size() == size->second &&
         std::ranges::all_of(members->second, [&](uint32_t member) {
           const auto rank = view.ranks.find(member);
           return rank != view.ranks.end() && rank->second.calls.contains(op);
         });
}

// "; rank 1 (host a, pid 7) is in all_reduce #3 for 5 s", as of the first; empty: none is.
std::string who_is_in_operation(const JobView& view) {
  for (const auto& [number, rank] : view.ranks)
    for (const auto& [op, call] : rank.calls)
      if (!call->ended() && rank.pid != 0 && !view.channels.contains(op.group))
        return "; " + view.name_of(number) + " is in " + describe(*call) + " for " +
               describe_seconds(view.seconds_since(rank.host, call->begun_ns()));
  return "";
}

// What ranks have asked for and offered may be all that there is to know: they may wait or compute.
std::string quiet_text(const JobView& view, std::optional<double> quiet,
                       const std::vector<OpenMessage>& messages) {
  if (messages.empty() || !quiet) return ", and none waits: the job is idle";
  std::string text = std::string("; ") +
                     (view.silent.empty() ? "no rank has" : "no rank is known to have") +
                     " called anything for " + describe_seconds(*quiet);
  for (size_t i = 0; i < std::min(messages.size(), kMessagesNamed); ++i)
    text += (i == 0 ? "; " : ", ") + describe(view, messages[i]);
  return text;
}

Finding find_network(const JobView& view) {
  std::optional<Diagnosis> found;
  for (const auto& [name, host] : view.hosts) {
    if (!host.has_worker) continue;  // Nobody is left who could move it.
    for (const auto& [operation, call] : host.among_hosts) {
      const double seconds = view.seconds_since(name, call->begun_ns());
      if (call->ended() || seconds < kNetworkSeconds || !all_have_called(view, operation)) continue;
      if (!found)
        found = Diagnosis{.verdict = Verdict::network,
                          .sentence = "all ranks have called " + describe(*call) +
                                      ", and its data is under way between hosts for " +
                                      describe_seconds(seconds)};
      if (found->evidence.size() < kEvidenceMax)
        found->evidence.push_back("host " + name + ": " + describe(*call) + ", " +
                                  format_byte_size(call->bytes()) + " a rank, for " +
                                  describe_seconds(seconds));
    }
  }
  return found;
}

Finding find_idle(const JobView& view) {
  const std::optional<double> quiet = quiet_seconds(view);
  if (quiet && *quiet < kRecentSeconds) return std::nullopt;
  const std::string operation = who_is_in_operation(view);
  const std::vector<OpenMessage> messages = open_messages(view);
  const bool is_known = !view.lacks_agents || !has_untold_members(view, 0);
  Diagnosis found{.verdict = is_known ? Verdict::idle : Verdict::unanswered,
                  .sentence = joined_text(view)};
  found.sentence += operation.empty() ? quiet_text(view, quiet, messages) : operation;
  found.sentence += untold_text(view);
  for (size_t i = operation.empty() ? kMessagesNamed : 0; i < messages.size(); ++i)
    if (found.evidence.size() + 1 < kEvidenceMax)
      found.evidence.push_back(describe(view, messages[i]));
  found.evidence.push_back(quiet ? "the last operation was " + describe_seconds(*quiet) + " ago"
                                 : "there was no operation yet");
  return found;
}

Diagnosis running(const JobView& view) {
  const RankView* busiest = nullptr;
  for (const auto& [number, rank] : view.ranks)
    if (busiest == nullptr || rank.calls.size() > busiest->calls.size()) busiest = &rank;
  const Pace pace = busiest == nullptr ? Pace() : pace_of(view, *busiest);
  std::string sentence =
      joined_text(view) + " and run " + format_number(pace.now) + " operations a second";
  if (const double quiet = quiet_seconds(view).value_or(0); quiet >= kQuietSeconds)
    sentence += ", the last one " + describe_seconds(quiet) + " ago";
  if (pace.before > kFallen * pace.now) sentence += ", " + format_number(pace.before) + " before";
  Diagnosis found{.verdict = Verdict::running, .sentence = sentence + untold_text(view)};
  if (const v1::Failure* told = told_failure(view))
    found.evidence.push_back("an operation had failed" + told_ago_text(view, *told) + ": " +
                             text_of(*told));
  return found;
}

}  // namespace tutti

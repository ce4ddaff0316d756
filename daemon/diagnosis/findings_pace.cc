// Findings of speed: slow links, ranks that are late, data that does not move; and how a
// healthy job runs.
#include <algorithm>

#include "daemon/base/text.h"
#include "daemon/diagnosis/findings.h"

namespace tutti {
namespace {

constexpr double kSlowLink = 4;        // Times slower than the others.
constexpr double kLateSeconds = 0.02;  // Less is nobody's fault,
constexpr double kLateShare = 0.2;     // and so is less than this of the time between operations.
constexpr size_t kLateOperations = 8;  // From so many on a rank is late as a rule.
constexpr double kOverSeconds = 10;    // A job that has called nothing for so long, and for so
constexpr double kOverIntervals = 10;  // many times its usual pause, does something else now.
constexpr double kNetworkSeconds = 1;
constexpr double kRecentSeconds = 2;

// ---- Links ----

struct Link {
  std::string from;
  std::string to;
  double bytes_a_second = 0;
};

std::vector<Link> links_of(const JobView& view) {
  std::vector<Link> links;
  for (const v1::WorkerReport* worker : view.workers)
    for (const v1::LinkTime& link : worker->tuning().links())
      if (link.byte_us() > 0) links.push_back({link.from(), link.to(), 1e6 / link.byte_us()});
  return links;
}

// The best median of the other links: of all, or without either of its hosts, which may slow down
// all of its links.
double usual_rate(const std::vector<Link>& links, const Link& of) {
  double best = 0;
  for (const std::string& avoided : {std::string(), of.from, of.to}) {
    std::vector<double> rates;
    for (const Link& link : links)
      if (&link != &of && link.from != avoided && link.to != avoided)
        rates.push_back(link.bytes_a_second);
    best = std::max(best, median(std::move(rates)));
  }
  return best;
}

std::string rate_text(double bytes_a_second) {
  return format_byte_size(static_cast<uint64_t>(bytes_a_second)) + "/s";
}

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

}  // namespace

Finding find_slow_link(const JobView& view) {
  const std::vector<Link> links = links_of(view);
  std::vector<std::pair<double, const Link*>> slow;  // With how many times.
  for (const Link& link : links) {
    const double times = usual_rate(links, link) / link.bytes_a_second;
    if (times >= kSlowLink) slow.emplace_back(times, &link);
  }
  if (slow.empty()) return std::nullopt;
  std::ranges::sort(slow, std::greater<>(), [](const auto& entry) { return entry.first; });
  const auto& [times, slowest] = slow.front();
  Diagnosis found{.verdict = Verdict::slow_link,
                  .sentence = "link " + slowest->from + "->" + slowest->to + " moves 1/" +
                              std::to_string(static_cast<int64_t>(times)) +
                              " of the median of the others"};
  for (const auto& [more, link] : slow)
    if (found.evidence.size() < kEvidenceMax)
      found.evidence.push_back("link " + link->from + "->" + link->to + ": " +
                               rate_text(link->bytes_a_second) + ", others " +
                               rate_text(usual_rate(links, *link)));
  return found;
}

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

// ", and none waits", or who does.
std::string who_waits(const JobView& view) {
  for (const auto& [number, rank] : view.ranks)
    for (const auto& [op, call] : rank.calls)
      if (!call->ended() && rank.pid != 0)
        return "; " + view.name_of(number) + " is in " + describe(*call) + " for " +
               describe_seconds(view.seconds_since(rank.host, call->begun_ns()));
  return ", and none waits: the job is idle";
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
  Diagnosis found{.verdict = Verdict::idle, .sentence = joined_text(view) + who_waits(view)};
  found.evidence.push_back(quiet ? "the last operation was " + describe_seconds(*quiet) + " ago"
                                 : "there was no operation yet");
  return found;
}

Diagnosis running(const JobView& view) {
  uint64_t operations = 0;
  double seconds = 0;
  for (const auto& [number, rank] : view.ranks) {
    if (rank.calls.empty()) continue;
    uint64_t first = UINT64_MAX;
    for (const auto& [op, call] : rank.calls) first = std::min(first, call->begun_ns());
    const double span = view.seconds_since(rank.host, first);
    if (span <= seconds) continue;
    seconds = span;
    operations = rank.calls.size();
  }
  const double rate = seconds > 0 ? static_cast<double>(operations) / seconds : 0;
  return {
      .verdict = Verdict::running,
      .sentence = joined_text(view) + " and run " + format_number(rate) + " operations a second"};
}

}  // namespace tutti

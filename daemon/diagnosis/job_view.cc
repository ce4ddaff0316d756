#include "daemon/diagnosis/job_view.h"

#include <algorithm>

#include "daemon/base/group_number.h"
#include "daemon/diagnosis/grade.h"
#include "daemon/diagnosis/traced_operations.h"
#include "proto/types.h"

namespace tutti {
namespace {

constexpr double kSecondNs = 1e9;
constexpr int64_t kMillisecondNs = 1'000'000;
constexpr size_t kOpenMessagesMax = 64;
// To find out who sends messages to whom, in a view: some milliseconds.
constexpr size_t kHashesMax = size_t{1} << 17;
constexpr uint32_t kWorldSizeMax = UINT16_MAX;  // Of a job; a report may claim more.

// The word of the host that a rank ran on counts, because it learned of its end first.
void add_departures(const std::string& host, const v1::Departures& departures, JobView& view) {
  if (departures.epoch() != view.epoch) return;
  for (const v1::Departure& departure : departures.first()) {
    RankView& rank = view.ranks[departure.rank()];
    if (rank.departure != nullptr && departure.host() != host) continue;
    rank.departure = &departure;
    rank.host = departure.host();
  }
}

void add_worker(const v1::AgentReport& agent, const v1::WorkerReport& worker, JobView& view) {
  view.has_worker = true;
  view.workers.push_back(&worker);
  add_departures(agent.host(), worker.departures(), view);
  view.world_size = std::max(view.world_size, std::min(worker.world_size(), kWorldSizeMax));
  HostView& host = view.hosts[agent.host()];
  host.has_worker = worker.state() != "ended";
  host.worker = &worker;
  host.joining_s = static_cast<double>(worker.joining_ms()) / 1000;
  for (const v1::RankReport& rank : worker.ranks()) {
    RankView& known = view.ranks[rank.rank()];
    known.host = agent.host();
    known.pid = rank.pid();
    known.is_joining = rank.epoch() == 0;
  }
}

bool is_of(const v1::WorkerReport& worker, const JobView& view) {
  return worker.job() == view.job && owner_of(worker) == view.owner;
}

// When the first of the job's workers started, by its host's clock; nullopt: it has none, or they
// do not tell.
std::optional<int64_t> start_of(const v1::StatusReply& status, const JobView& view) {
  std::optional<int64_t> first_ms;
  for (const v1::AgentReport& agent : status.agents())
    for (const v1::WorkerReport& worker : agent.workers())
      if (is_of(worker, view) && worker.started_ms() != 0)
        first_ms = std::min(first_ms.value_or(worker.started_ms()), worker.started_ms());
  return first_ms;
}

// What ended before the workers of now started was another run: numbers of epochs begin again where
// the coordinator has lost its state, and are 0 before all ranks have joined.
void add_ended(const v1::StatusReply& status, JobView& view) {
  const std::optional<int64_t> start_ms = start_of(status, view);
  for (const EndedOnHost& ended : last_run(view.job, view.owner, status)) {
    const v1::WorkerReport& last = ended.job->last();
    if (epoch_of(last) != view.epoch) continue;
    if (start_ms && ended.job->time_ms() < *start_ms) continue;
    view.ended.push_back(ended);
    view.workers.push_back(&last);
    view.world_size = std::max(view.world_size, std::min(last.world_size(), kWorldSizeMax));
    add_departures(ended.host, last.departures(), view);
  }
}

// A clock that stands still since the job's first rank on the host went.
void stop_clocks(JobView& view) {
  for (const EndedOnHost& ended : view.ended) {
    int64_t first_ms = ended.job->time_ms();
    for (const auto& [number, rank] : view.ranks)
      if (rank.departure != nullptr && rank.host == ended.host && rank.departure->time_ms() != 0)
        first_ms = std::min(first_ms, rank.departure->time_ms());
    view.hosts[ended.host].now_ns = first_ms * kMillisecondNs;
  }
}

// It is known which jobs an agent has that is gone.
bool is_silent(const v1::AgentReport& agent, const JobView& view) {
  if (!is_gone(agent)) return grade_of(agent) == Grade::fail || agent.state() == "busy";
  return std::ranges::any_of(agent.workers(),
                             [&](const auto& worker) { return is_of(worker, view); });
}

void add_status(const v1::StatusReply& status, JobView& view) {
  for (const v1::AgentReport& agent : status.agents()) {
    const bool does_not_tell = is_silent(agent, view);
    if (does_not_tell)
      view.silent.push_back("host " + (agent.host().empty() ? "" : agent.host() + " (") +
                            agent.address() + (agent.host().empty() ? " " : ") ") +
                            describe_state(agent) +
                            (is_gone(agent) ? "; what its ranks called is not known" : ""));
    view.lacks_agents |= does_not_tell && agent.state() != "busy";
    for (const v1::RefusedJoin& join : agent.refused_joins())
      if (join.job() == view.job) view.refused.push_back(&join);
    if (agent.time_ms() != 0) {
      HostView& host = view.hosts[agent.host()];
      host.asked_ns = host.now_ns = agent.time_ms() * kMillisecondNs;
    }
    for (const v1::WorkerReport& worker : agent.workers()) {
      if (!is_of(worker, view)) continue;
      if (worker.silent())
        view.silent.push_back("the worker of host " + agent.host() + " (pid " +
                              std::to_string(worker.pid()) + ") does not answer");
      add_worker(agent, worker, view);
    }
  }
  add_ended(status, view);
  if (!view.has_worker) stop_clocks(view);
}

void add_calls(const v1::RankTrace& trace, const HostView& host, RankView& rank) {
  uint64_t seen = 0;
  rank.is_traced = true;
  rank.is_cut = trace.recorded() > static_cast<uint64_t>(trace.operations_size());
  for (const v1::TracedOperation& call : trace.operations()) {
    rank.calls[{call.group(), call.number()}] = &call;
    uint64_t& next = rank.next[call.group()];
    next = std::max(next, call.number() + 1);
    seen = std::max({seen, call.begun_ns(), call.ended() ? end_of(call) : 0});
    const bool is_newest = rank.last_ended == nullptr || end_of(call) >= end_of(*rank.last_ended);
    if (call.ended() && is_newest) rank.last_ended = &call;
  }
  if (seen != 0 && host.now_ns)
    rank.seen_s = (static_cast<double>(*host.now_ns) - static_cast<double>(seen)) / kSecondNs;
}

void add_host(const v1::HostTrace& trace, JobView& view) {
  view.has_trace = true;
  HostView& host = view.hosts[trace.host()];
  for (const v1::TracedOperation& operation : trace.among_hosts())
    host.among_hosts[{operation.group(), operation.number()}] = &operation;
  for (const v1::TracedGroup& group : trace.groups()) {
    view.groups[group.number()].insert(group.ranks().begin(), group.ranks().end());
    view.group_sizes[group.number()] = group.size();
  }
  for (const v1::RankTrace& rank : trace.ranks()) {
    RankView& known = view.ranks[rank.rank()];
    known.host = trace.host();
    add_calls(rank, host, known);
  }
}

// For the newest epoch alone.
void add_trace(const v1::TraceReply& trace, JobView& view) {
  for (const v1::HostTrace& host : trace.hosts()) {
    const bool is_own = host.job() == view.job && owner_of(host) == view.owner;
    if (!is_own || host.epoch() != view.epoch) continue;
    view.world_size = std::max(view.world_size, std::min(host.world_size(), kWorldSizeMax));
    add_host(host, view);
  }
}

// A receiver asks before there is a message, and a sender takes note late that it is gone
// (client/messages/channel.h). A group of two that only broadcasts looks the same.
void add_channels(JobView& view) {
  std::set<uint32_t> others = {0};
  for (const auto& [number, rank] : view.ranks)
    for (const auto& [op, call] : rank.calls)
      if (call->collective() != static_cast<uint32_t>(Collective::broadcast) || call->root() != 0)
        others.insert(op.group);
  for (const auto& [group, size] : view.group_sizes)
    if (size == 2 && !others.contains(group)) view.channels.insert(group);
}

// Hosts that did not say what their ranks called: they did not answer, or have no record of the
// epoch, as after a restart of the agent.
void add_untold(const v1::StatusReply& status, const v1::TraceReply& trace, JobView& view) {
  const std::string unknown = ": what its ranks called is not known";
  std::set<std::string> untold;
  for (const auto& [number, rank] : view.ranks)
    if (!rank.is_traced && !rank.is_joining && rank.pid != 0) untold.insert(rank.host);
  for (const v1::AgentReport& agent : status.agents())
    if (is_gone(agent)) untold.erase(agent.host());  // As was said.
  for (const v1::AgentReport& agent : trace.missing()) {
    untold.erase(agent.host());
    view.silent.push_back("host " + (agent.host().empty() ? agent.address() : agent.host()) +
                          " did not answer (" + agent.state() + ")" + unknown);
  }
  for (const std::string& host : untold)
    view.silent.push_back("host " + host + " has no record of epoch " + std::to_string(view.epoch) +
                          unknown);
}

}  // namespace

JobView view_job(const std::string& job, const JobOwner& owner, const v1::StatusReply& status,
                 const v1::TraceReply& trace) {
  JobView view{.job = job, .owner = owner, .epoch = newest_epoch(job, owner, status, trace)};
  view.lone = describe_lone(status);
  add_status(status, view);
  add_trace(trace, view);
  std::set<uint32_t>& all = view.groups[0];
  for (uint32_t rank = 0; rank < view.world_size; ++rank) all.insert(rank);
  view.group_sizes[0] = view.world_size;
  add_channels(view);
  add_untold(status, trace, view);
  return view;
}

namespace {

// Finds who sends messages to whom by the numbers of groups. Tries so many at most, because job and
// groups may have been made up to keep the reader busy.
class WayFinder {
 public:
  explicit WayFinder(const JobView& view) : view_(view) {}

  // `rank` is one of the two.
  std::optional<MessageWay> find(uint32_t group, uint32_t rank) {
    for (const auto& [parent, members] : view_.groups) {
      if (view_.channels.contains(parent) || !members.contains(rank)) continue;
      for (const auto& [other, known] : view_.ranks) {
        if (other == rank) continue;
        if (hashes_left_ < 2) return std::nullopt;
        hashes_left_ -= 2;
        if (is_way(rank, other, parent, group)) return MessageWay{rank, other};
        if (is_way(other, rank, parent, group)) return MessageWay{other, rank};
      }
    }
    return std::nullopt;
  }

 private:
  bool is_way(uint32_t from, uint32_t to, uint32_t parent, uint32_t group) {
    ends_ = {static_cast<int>(from), static_cast<int>(to)};
    return channel_number(ends_, uint64_t{parent} + 1) == group;
  }

  const JobView& view_;
  size_t hashes_left_ = kHashesMax;
  std::vector<int> ends_;
};

}  // namespace

std::vector<OpenMessage> open_messages(const JobView& view, std::optional<uint32_t> of) {
  WayFinder ways(view);
  std::vector<OpenMessage> open;
  for (const auto& [number, rank] : view.ranks)
    for (const auto& [op, call] : rank.calls)
      if (!call->ended() && rank.pid != 0 && of.value_or(number) == number &&
          view.channels.contains(op.group) && open.size() < kOpenMessagesMax)
        open.push_back({number, call, ways.find(op.group, number)});
  return open;
}

std::string describe(const JobView& view, const OpenMessage& message) {
  const auto& [rank, call, way] = message;
  const std::string start = "rank " + std::to_string(rank);
  const std::string ago =
      " " + describe_seconds(view.seconds_since(view.ranks.at(rank).host, call->begun_ns())) +
      " ago";
  if (!way) return start + " called " + describe(*call) + ago;
  if (way->to == rank)
    return start + " asked rank " + std::to_string(way->from) + " for a message" + ago;
  return start + " offered rank " + std::to_string(way->to) + " a message" + ago;
}

std::string describe(const JobView& view, uint32_t rank, const v1::TracedOperation& call) {
  const std::optional<MessageWay> way = view.channels.contains(call.group())
                                            ? WayFinder(view).find(call.group(), rank)
                                            : std::nullopt;
  if (!way) return describe(call);
  return way->to == rank ? "recv from rank " + std::to_string(way->from)
                         : "send to rank " + std::to_string(way->to);
}

std::string JobView::name_of(uint32_t rank) const {
  const std::string name = "rank " + std::to_string(rank);
  const auto found = ranks.find(rank);
  if (found == ranks.end()) return name;
  const RankView& known = found->second;
  if (known.pid != 0)
    return name + " (host " + known.host + ", pid " + std::to_string(known.pid) + ")";
  if (known.departure == nullptr) return name + " (host " + known.host + ", left or ended)";
  return name + " (host " + known.host + ", pid " + std::to_string(known.departure->pid()) +
         (known.departure->cause().code() == 0 ? ", left)" : ", died)");
}

bool JobView::has_died(uint32_t rank) const {
  const auto known = ranks.find(rank);
  return known != ranks.end() && known->second.departure != nullptr &&
         known->second.departure->cause().code() != 0;
}

double JobView::seconds_since(const std::string& host, uint64_t ns) const {
  const auto found = hosts.find(host);
  if (found == hosts.end() || !found->second.now_ns) return 0;
  return std::max(
      0.0, (static_cast<double>(*found->second.now_ns) - static_cast<double>(ns)) / kSecondNs);
}

double JobView::seconds_ago(const std::string& host, int64_t time_ms) const {
  const auto found = hosts.find(host);
  if (found == hosts.end() || !found->second.asked_ns) return 0;
  const double asked_ms = static_cast<double>(*found->second.asked_ns) / kMillisecondNs;
  return std::max(0.0, (asked_ms - static_cast<double>(time_ms)) / 1'000);
}

std::string JobView::ago_text(const std::string& host, int64_t time_ms) const {
  const auto found = hosts.find(host);
  if (found == hosts.end() || !found->second.asked_ns) return "some time ago";
  return describe_seconds(seconds_ago(host, time_ms)) + " ago";
}

uint64_t end_of(const v1::TracedOperation& operation) {
  return operation.begun_ns() + operation.duration_ns();
}

EpochOp op_of(const v1::TracedOperation& operation) {
  return {operation.group(), operation.number()};
}

std::string describe(const v1::TracedOperation& operation) {
  const auto collective = static_cast<Collective>(operation.collective() % kCollectives);
  std::string text(name_of(collective));
  text += " #" + std::to_string(operation.number());
  return operation.group() == 0 ? text : text + " of group " + std::to_string(operation.group());
}

std::string signature_text(const v1::TracedOperation& operation) {
  Signature signature = canonical(signature_of(operation));
  signature.layout = 0;  // to_string() would take it for a whole one.
  const std::string text = to_string(signature);
  if (operation.layout() == 0) return text;
  return text + " (layout " + std::to_string(operation.layout()) + ")";
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace tutti

#include "daemon/diagnosis/job_view.h"

#include <algorithm>

#include "daemon/diagnosis/grade.h"
#include "daemon/diagnosis/traced_operations.h"

namespace tutti {
namespace {

constexpr double kSecondNs = 1e9;
constexpr int64_t kMillisecondNs = 1'000'000;
constexpr uint32_t kWorldSizeMax = UINT16_MAX;  // Of a job; a report may claim more.

void add_worker(const v1::AgentReport& agent, const v1::WorkerReport& worker, JobView& view) {
  view.has_worker = true;
  view.workers.push_back(&worker);
  view.world_size = std::max(view.world_size, std::min(worker.world_size(), kWorldSizeMax));
  HostView& host = view.hosts[agent.host()];
  host.has_worker = worker.state() != "ended";
  host.joining_s = static_cast<double>(worker.joining_ms()) / 1000;
  for (const v1::RankReport& rank : worker.ranks()) {
    RankView& known = view.ranks[rank.rank()];
    known.host = agent.host();
    known.pid = rank.pid();
    known.is_joining = rank.epoch() == 0;
  }
}

void add_status(const v1::StatusReply& status, JobView& view) {
  for (const v1::AgentReport& agent : status.agents()) {
    if (grade_of(agent) == Grade::fail || agent.state() == "busy")
      view.silent.push_back("host " + agent.host() + " (" + agent.address() + ") is " +
                            agent.state());
    if (agent.time_ms() != 0) view.hosts[agent.host()].now_ns = agent.time_ms() * kMillisecondNs;
    for (const v1::WorkerReport& worker : agent.workers()) {
      if (worker.job() != view.job || owner_of(worker) != view.owner) continue;
      if (worker.silent())
        view.silent.push_back("the worker of host " + agent.host() + " (pid " +
                              std::to_string(worker.pid()) + ") does not answer");
      add_worker(agent, worker, view);
    }
  }
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

// Hosts that did not say what their ranks called: they did not answer, or have no record of the
// epoch, as after a restart of the agent.
void add_untold(const v1::TraceReply& trace, JobView& view) {
  const std::string unknown = ": what its ranks called is not known";
  std::set<std::string> untold;
  for (const auto& [number, rank] : view.ranks)
    if (!rank.is_traced && !rank.is_joining) untold.insert(rank.host);
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
  add_status(status, view);
  add_trace(trace, view);
  std::set<uint32_t>& all = view.groups[0];
  for (uint32_t rank = 0; rank < view.world_size; ++rank) all.insert(rank);
  view.group_sizes[0] = view.world_size;
  add_untold(trace, view);
  return view;
}

std::string JobView::name_of(uint32_t rank) const {
  const std::string name = "rank " + std::to_string(rank);
  const auto found = ranks.find(rank);
  if (found == ranks.end()) return name;
  const RankView& known = found->second;
  const std::string process =
      known.pid == 0 ? ", left or ended" : ", pid " + std::to_string(known.pid);
  return name + " (host " + known.host + process + ")";
}

double JobView::seconds_since(const std::string& host, uint64_t ns) const {
  const auto found = hosts.find(host);
  if (found == hosts.end() || !found->second.now_ns) return 0;
  return std::max(
      0.0, (static_cast<double>(*found->second.now_ns) - static_cast<double>(ns)) / kSecondNs);
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

#include "daemon/diagnosis/job_owners.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace tutti {
namespace {

struct Seen {
  bool has_worker = false;
  bool is_running = false;
  // A coordinator that lost its state begins again at 1, so numbers alone do not tell.
  uint32_t running_epoch = 0;
  uint32_t ended_epoch = 0;
  void add(uint32_t epoch, bool ended) {
    uint32_t& newest = ended ? ended_epoch : running_epoch;
    newest = std::max(newest, epoch);
  }
};

std::map<JobOwner, Seen> owners_seen(const std::string& job, const v1::StatusReply& status,
                                     const v1::TraceReply& trace) {
  std::map<JobOwner, Seen> owners;
  for (const v1::AgentReport& agent : status.agents())
    for (const v1::WorkerReport& worker : agent.workers()) {
      if (worker.job() != job) continue;
      Seen& seen = owners[owner_of(worker)];
      const bool ended = worker.state() == "ended";
      seen.has_worker = true;
      seen.is_running |= !ended;
      seen.add(worker.epoch(), ended);
    }
  std::set<JobOwner> remembered;
  for (const v1::AgentReport& agent : status.agents())
    for (const v1::EndedJob& ended : agent.ended())
      if (ended.last().job() == job) remembered.insert(owner_of(ended.last()));
  for (const JobOwner& owner : remembered)
    for (const EndedOnHost& ended : last_run(job, owner, status))
      owners[owner].add(epoch_of(ended.job->last()), true);
  for (const v1::HostTrace& host : trace.hosts()) {
    if (host.job() != job) continue;
    Seen& seen = owners[owner_of(host)];
    seen.is_running |= !seen.has_worker && !host.ended();
    const bool may_be_older = host.ended() && remembered.contains(owner_of(host));
    if (!may_be_older) seen.add(host.epoch(), host.ended());
  }
  return owners;
}

std::string job_of(const v1::TraceReply& trace) {
  return trace.hosts().empty() ? "" : trace.hosts(0).job();
}

}  // namespace

std::string describe(const JobOwner& owner) {
  const std::string user = "user " + std::to_string(owner.uid);
  return owner.subject.empty() ? user : user + " (" + owner.subject + ")";
}

JobOwner owner_of(const v1::HostTrace& trace) {
  return {trace.owner().uid(), trace.owner().subject()};
}

JobOwner owner_of(const v1::WorkerReport& worker) {
  return {worker.uid(), worker.pass().subject()};
}

uint32_t epoch_of(const v1::WorkerReport& worker) {
  return std::max(worker.epoch(), worker.departures().epoch());
}

std::vector<EndedOnHost> last_run(const std::string& job, const JobOwner& owner,
                                  const v1::StatusReply& status) {
  std::vector<EndedOnHost> all;
  std::vector<int64_t> ago_ms;  // Of each one's end.
  int64_t newest_ago_ms = std::numeric_limits<int64_t>::max();
  int64_t started_ago_ms = newest_ago_ms;  // Of the newest.
  for (const v1::AgentReport& agent : status.agents())
    for (const v1::EndedJob& ended : agent.ended()) {
      const v1::WorkerReport& last = ended.last();
      if (last.job() != job || owner_of(last) != owner) continue;
      all.push_back({agent.host(), &ended});
      ago_ms.push_back(agent.time_ms() - ended.time_ms());
      if (ago_ms.back() >= newest_ago_ms) continue;
      newest_ago_ms = ago_ms.back();
      started_ago_ms = last.started_ms() == 0 ? std::numeric_limits<int64_t>::max()
                                              : agent.time_ms() - last.started_ms();
    }
  std::vector<EndedOnHost> run;
  for (size_t i = 0; i < all.size(); ++i)
    if (ago_ms[i] <= started_ago_ms) run.push_back(all[i]);
  return run;
}

std::vector<JobOwner> owners_of(const std::string& job, const v1::StatusReply& status,
                                const v1::TraceReply& trace) {
  const std::map<JobOwner, Seen> seen = owners_seen(job, status, trace);
  const bool any_running =
      std::ranges::any_of(seen, [](const auto& entry) { return entry.second.is_running; });
  std::vector<JobOwner> owners;
  for (const auto& [owner, has] : seen)
    if (has.is_running || !any_running) owners.push_back(owner);
  return owners;
}

std::vector<JobOwner> owners_of(const v1::TraceReply& trace) {
  return owners_of(job_of(trace), v1::StatusReply(), trace);
}

uint32_t newest_epoch(const std::string& job, const JobOwner& owner, const v1::StatusReply& status,
                      const v1::TraceReply& trace) {
  const std::map<JobOwner, Seen> owners = owners_seen(job, status, trace);
  const auto seen = owners.find(owner);
  if (seen == owners.end()) return 0;
  const bool runs = seen->second.is_running || seen->second.running_epoch != 0;
  return runs ? seen->second.running_epoch : seen->second.ended_epoch;
}

uint32_t newest_epoch(const JobOwner& owner, const v1::TraceReply& trace) {
  return newest_epoch(job_of(trace), owner, v1::StatusReply(), trace);
}

}  // namespace tutti

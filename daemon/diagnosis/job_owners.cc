#include "daemon/diagnosis/job_owners.h"

#include <algorithm>
#include <map>

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
  for (const v1::HostTrace& host : trace.hosts()) {
    if (host.job() != job) continue;
    Seen& seen = owners[owner_of(host)];
    seen.is_running |= !seen.has_worker && !host.ended();
    seen.add(host.epoch(), host.ended());
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

#include "daemon/agent/traces.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "daemon/trace/trace.h"

namespace tutti {
namespace {

constexpr size_t kEpochsKept = 2;  // Of each job.

}  // namespace

std::vector<KeptRecorder> newest_of(std::vector<KeptRecorder> kept) {
  std::map<std::tuple<std::string, uint32_t, std::string>, KeptRecorder> newest;
  for (KeptRecorder& one : kept) {
    if (one.ended) continue;
    KeptRecorder& best = newest[{one.pass.job(), one.pass.uid(), one.pass.subject()}];
    if (best.memory == nullptr || best.epoch < one.epoch) best = std::move(one);
  }
  std::vector<KeptRecorder> found;
  for (auto& [key, one] : newest) found.push_back(std::move(one));
  return found;
}

void Traces::add(const v1::Pass& pass, uint32_t epoch, Fd memory) {
  if (Status usable = trace::check_recorder(memory.get()); !usable.ok())
    return spdlog::debug("job \"{}\": {}", pass.job(), usable.message());
  Job& job = jobs_[key_of(pass)];
  job.pass = pass;
  job.ended.reset();
  if (!job.recorders.empty() && epoch <= job.recorders.rbegin()->first) job.recorders.clear();
  job.recorders[epoch].memory = std::make_shared<const Fd>(std::move(memory));
  if (job.recorders.size() > kEpochsKept) job.recorders.erase(job.recorders.begin());
}

void Traces::end(const v1::Pass& pass) {
  const auto job = jobs_.find(key_of(pass));
  if (job == jobs_.end()) return;
  job->second.ended = Clock::now();
  for (auto& [epoch, recorder] : job->second.recorders) recorder.ended = true;
  make_room();
  drop_expired();
}

uint64_t Traces::bytes_of(const Job& job) {
  uint64_t bytes = 0;
  for (const auto& [epoch, recorder] : job.recorders)
    bytes += trace::touched_bytes(recorder.memory->get());
  return bytes;
}

// An owner who begins and ends many jobs does not drive out what others want to look at.
void Traces::make_room() {
  using Owner = std::pair<uint32_t, std::string>;
  const auto owner_of = [](const Job& job) { return Owner(job.pass.uid(), job.pass.subject()); };
  std::map<Owner, Kept> owners;
  std::map<Key, uint64_t> bytes;  // Read once: programs of a job may change it.
  Kept all;
  for (const auto& [key, job] : jobs_) {
    if (!job.ended) continue;
    const uint64_t own = bytes[key] = bytes_of(job);
    for (Kept* kept : {&owners[owner_of(job)], &all}) ++kept->jobs, kept->bytes += own;
  }
  while (all.jobs > settings_.trace_jobs || all.bytes > ended_bytes_max_) {
    const bool too_many = all.jobs > settings_.trace_jobs;
    const auto most = std::ranges::max_element(owners, {}, [&](const auto& entry) {
      return too_many ? static_cast<uint64_t>(entry.second.jobs) : entry.second.bytes;
    });
    auto oldest = jobs_.end();
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job)
      if (job->second.ended && owner_of(job->second) == most->first &&
          (oldest == jobs_.end() || *job->second.ended < *oldest->second.ended))
        oldest = job;
    const uint64_t own = bytes.at(oldest->first);
    for (Kept* kept : {&most->second, &all}) --kept->jobs, kept->bytes -= own;
    jobs_.erase(oldest);
  }
}

void Traces::drop_expired() {
  loop_.cancel(std::exchange(timer_, 0));
  const Millis keep(settings_.trace_keep_ms);
  const TimePoint now = Clock::now();
  std::erase_if(jobs_, [&](const auto& entry) {
    return entry.second.ended && *entry.second.ended + keep <= now;
  });
  std::optional<TimePoint> next;
  for (const auto& [key, job] : jobs_)
    if (job.ended && (!next || *job.ended + keep < *next)) next = *job.ended + keep;
  if (next) timer_ = loop_.at(*next, [this] { drop_expired(); });
}

std::vector<KeptRecorder> Traces::find(const std::string& job) const {
  std::vector<KeptRecorder> found;
  for (const auto& [key, kept] : jobs_) {
    if (!job.empty() && kept.pass.job() != job) continue;
    for (const auto& [epoch, recorder] : kept.recorders)
      found.push_back({kept.pass, epoch, recorder.ended, recorder.memory});
  }
  return found;
}

}  // namespace tutti

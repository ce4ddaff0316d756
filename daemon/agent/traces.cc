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

// A user who begins and ends many jobs does not drive out what others want to look at.
void Traces::make_room() {
  std::map<uint32_t, int64_t> counts;  // Ended jobs by user.
  int64_t all = 0;
  for (const auto& [key, job] : jobs_)
    if (job.ended) ++counts[job.pass.uid()], ++all;
  for (; all > settings_.trace_jobs; --all) {
    const auto most =
        std::ranges::max_element(counts, {}, [](auto& entry) { return entry.second; });
    auto oldest = jobs_.end();
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job)
      if (job->second.ended && job->second.pass.uid() == most->first &&
          (oldest == jobs_.end() || *job->second.ended < *oldest->second.ended))
        oldest = job;
    jobs_.erase(oldest);
    --most->second;
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

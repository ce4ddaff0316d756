#include "daemon/agent/ended_jobs.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <utility>

#include "daemon/base/loop.h"
#include "daemon/base/status_message.h"
#include "daemon/diagnosis/diagnosis.h"

namespace tutti {
namespace {

constexpr size_t kTextBytesMax = 512;
constexpr int kEpochsOfJobMax = 4;

std::string short_text(const std::string& text) {
  return well_formed(text.substr(0, kTextBytesMax));
}

Diagnosis judge_on_host(const v1::EndedJob& job, const v1::TraceReply& trace) {
  v1::StatusReply status;
  v1::AgentReport& agent = *status.add_agents();
  agent.set_host(job.last().pass().host());
  agent.set_state("serving");
  agent.set_time_ms(job.time_ms());
  *agent.add_ended() = job;
  return diagnose(job.last().job(), status, trace);
}

void log_failure(const v1::EndedJob& job, const Diagnosis& diagnosis) {
  std::string evidence;
  for (const std::string& line : diagnosis.evidence)
    if (line.find(": its worker ended ") == std::string::npos) evidence += "; " + line;
  spdlog::warn("job \"{}\" has failed: {}{}", job.last().job(), diagnosis.sentence, evidence);
}

// At most so much more from one report to the next: no sum may overflow, and so fall.
uint64_t growth(uint64_t before, uint64_t now) {
  constexpr uint64_t kGrowthMax = 1'000'000;
  return std::min(now - std::min(now, before), kGrowthMax);
}

v1::Failure short_failure(const v1::Failure& failure) {
  v1::Failure kept = failure;
  kept.mutable_status()->set_message(short_text(failure.status().message()));
  kept.mutable_status()->set_culprit_host(short_text(failure.status().culprit_host()));
  return kept;
}

// What is remembered of a worker. Its user may have made it say anything, of any length.
v1::WorkerReport remembered(const v1::WorkerReport& last, int64_t now_ms) {
  constexpr int kDeparturesKept = 16;
  v1::WorkerReport kept;
  kept.set_job(last.job());
  kept.set_pid(last.pid());
  kept.set_uid(last.uid());
  *kept.mutable_pass() = last.pass();
  kept.set_world_size(last.world_size());
  kept.set_epoch(last.epoch());
  kept.set_state(short_text(last.state()));
  kept.set_strategy(short_text(last.strategy()));
  kept.set_operations(last.operations());
  kept.set_failures(last.failures());
  kept.set_bytes(last.bytes());
  kept.set_ranks_died(last.ranks_died());
  kept.set_started_ms(std::clamp<int64_t>(last.started_ms(), 0, now_ms));
  if (last.has_failure()) *kept.mutable_failure() = short_failure(last.failure());
  if (last.has_failed_join()) *kept.mutable_failed_join() = short_failure(last.failed_join());
  v1::Departures& gone = *kept.mutable_departures();
  gone.set_epoch(last.departures().epoch());
  if (last.departures().has_cause()) *gone.mutable_cause() = last.departures().cause();
  gone.mutable_cause()->set_message(short_text(gone.cause().message()));
  if (!last.departures().has_cause()) gone.clear_cause();
  for (const uint32_t rank : last.departures().ranks())
    if (gone.ranks_size() < kDeparturesKept) gone.add_ranks(rank);
  for (const v1::Departure& one : last.departures().first()) {
    if (gone.first_size() == kDeparturesKept) break;
    v1::Departure& departure = *gone.add_first() = one;
    departure.set_host(short_text(one.host()));
    departure.mutable_cause()->set_message(short_text(one.cause().message()));
    departure.set_time_ms(std::clamp<int64_t>(one.time_ms(), 0, now_ms));
  }
  return kept;
}

// What is found of a job that has ended, as said of an epoch after which the job went on.
std::string sentence_of_epoch(uint32_t epoch, const std::string& found) {
  constexpr std::string_view kJobEnded = "the job has ended";
  const std::string start = "epoch " + std::to_string(epoch) + " failed: ";
  if (found.starts_with(start)) return found;
  return start +
         (found.starts_with(kJobEnded) ? "it ended" + found.substr(kJobEnded.size()) : found);
}

}  // namespace

void EndedJobs::count(const v1::WorkerReport& before, const v1::WorkerReport& now) {
  const std::lock_guard lock(mutex_);
  totals_.set_ranks_died(totals_.ranks_died() + growth(before.ranks_died(), now.ranks_died()));
  totals_.set_operations_failed(totals_.operations_failed() +
                                growth(before.failures(), now.failures()));
}

void EndedJobs::add(const v1::WorkerReport& last, const std::string& worker_end, bool is_stopped,
                    const v1::TraceReply& trace) {
  v1::EndedJob job;
  job.set_time_ms(unix_time<Millis>());
  *job.mutable_last() = remembered(last, job.time_ms());
  job.set_worker_end(worker_end);
  const Diagnosis diagnosis = judge_on_host(job, trace);
  const bool is_bad = has_failed(diagnosis.verdict);
  job.set_sentence(diagnosis.sentence);
  job.set_outcome(is_stopped ? "stopped" : is_bad ? "failed" : "ok");
  const bool is_logged = !worker_end.empty();  // By who saw the worker end.
  if (is_bad && !is_stopped && !is_logged) log_failure(job, diagnosis);
  const std::lock_guard lock(mutex_);
  totals_.set_jobs_stopped(totals_.jobs_stopped() + uint64_t{is_stopped});
  totals_.set_jobs_failed(totals_.jobs_failed() + uint64_t{is_bad && !is_stopped});
  totals_.set_jobs_ok(totals_.jobs_ok() + uint64_t{!is_bad && !is_stopped});
  keep({std::move(job), false});
}

void EndedJobs::add_epoch(const v1::WorkerReport& last, uint32_t next,
                          const v1::TraceReply& trace) {
  v1::EndedJob job;
  job.set_time_ms(unix_time<Millis>());
  *job.mutable_last() = remembered(last, job.time_ms());
  job.mutable_last()->clear_failed_join();  // Of the next one.
  Diagnosis diagnosis = judge_on_host(job, trace);
  if (!has_failed(diagnosis.verdict)) return;
  diagnosis.sentence = sentence_of_epoch(epoch_of(last), diagnosis.sentence) +
                       "; the job went on as epoch " + std::to_string(next);
  job.set_sentence(diagnosis.sentence);
  job.set_outcome("failed");
  const std::lock_guard lock(mutex_);
  if (log_limit_.may_log(std::to_string(last.uid()) + " " + last.job()))
    log_failure(job, diagnosis);
  keep({std::move(job), true});
}

// Locked.
void EndedJobs::keep(Kept added) {
  const auto owner_of_kept = [](const Kept& kept) { return owner_of(kept.job.last()); };
  const auto is_same_job = [&, owner = owner_of_kept(added)](const Kept& kept) {
    return kept.is_epoch && kept.job.last().job() == added.job.last().job() &&
           owner_of_kept(kept) == owner;
  };
  if (added.is_epoch && std::ranges::count_if(jobs_, is_same_job) >= kEpochsOfJobMax)
    jobs_.erase(std::ranges::find_if(jobs_, is_same_job));
  jobs_.push_back(std::move(added));
  const auto kept = static_cast<size_t>(settings_.trace_jobs);
  while (jobs_.size() > std::clamp<size_t>(kept, 1, kEndedJobsMax)) {
    std::map<JobOwner, size_t> counts;
    for (const Kept& job : jobs_) ++counts[owner_of_kept(job)];
    const auto most =
        std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
    jobs_.erase(std::ranges::find(jobs_, most->first, owner_of_kept));
  }
}

void EndedJobs::report(v1::AgentReport& report) const {
  const std::lock_guard lock(mutex_);
  *report.mutable_totals() = totals_;
  for (const Kept& kept : jobs_) *report.add_ended() = kept.job;
}

}  // namespace tutti

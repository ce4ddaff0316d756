// What this host remembers of jobs whose workers are gone: who failed, when and how; and the sums
// over all of its workers. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "daemon/base/log_limit.h"
#include "daemon/base/settings.h"
#include "proto/mesh.pb.h"

namespace tutti {

// Each is in every answer on ended jobs.
inline constexpr size_t kEndedJobsMax = 256;

class EndedJobs {
 public:
  // The setting trace_jobs says how many are kept.
  explicit EndedJobs(const Settings& settings) : settings_(settings) {}

  // A worker has reported `now`, and `before` earlier; `before` is empty for one that began under
  // this agent. Counts what came in between. Its user controls a worker, so less than before counts
  // as nothing, and much more as less.
  void count(const v1::WorkerReport& before, const v1::WorkerReport& now);

  // A job whose worker is gone: `last` is what that said last, `worker_end` as in EndedJob;
  // `is_stopped`: by this agent. `trace` is of this host and this job alone. Judges it, and logs
  // the judgement where it is bad, unless the worker crashed, which is in the log. Where there are
  // too many, the oldest one of the owner who has the most is dropped.
  void add(const v1::WorkerReport& last, const std::string& worker_end, bool is_stopped,
           const v1::TraceReply& trace);

  // An epoch of a job whose worker goes on with the next, `next`: as add(), but keeps it only where
  // it has failed, at most 4 of a job, and counts no job. `last` is what the worker said last of
  // it.
  void add_epoch(const v1::WorkerReport& last, uint32_t next, const v1::TraceReply& trace);

  // Fills in the jobs and the totals.
  void report(v1::AgentReport& report) const;

 private:
  struct Kept {
    v1::EndedJob job;
    bool is_epoch = false;
  };
  void keep(Kept added);

  const Settings& settings_;
  mutable std::mutex mutex_;  // Guards what follows.
  std::deque<Kept> jobs_;     // The oldest first.
  v1::Totals totals_;
  LogLimit log_limit_;  // Of epochs: their users decide how many there are.
};

}  // namespace tutti

// The flight recorders of this host's jobs: those of running jobs, and for a while those of jobs
// that ended. Loop thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/base/settings.h"
#include "proto/session.pb.h"

namespace tutti {

// One epoch of a job. `memory` may be read on any thread: see trace::read_trace().
struct KeptRecorder {
  v1::Pass pass;  // Whose job it is.
  uint32_t epoch = 0;
  bool ended = false;  // The worker that wrote it is gone.
  std::shared_ptr<const Fd> memory;
};

// The newest epoch of each job that runs.
std::vector<KeptRecorder> newest_of(std::vector<KeptRecorder> kept);

// For the recorders of all ended jobs: their memory counts for the agent, not for their users.
inline constexpr uint64_t kEndedTraceBytesMax = uint64_t{256} << 20;

class Traces {
 public:
  // The settings trace_jobs and trace_keep_ms say how many ended jobs are kept, and for how long.
  Traces(Loop& loop, const Settings& settings, uint64_t ended_bytes_max = kEndedTraceBytesMax)
      : loop_(loop), settings_(settings), ended_bytes_max_(ended_bytes_max) {}
  ~Traces() { loop_.cancel(timer_); }

  // The recorder of an epoch, as the job's worker sent it. Anything else is dropped, and so are
  // those of all but the newest epochs. A job whose epochs begin again, because the coordinator
  // does not know of earlier ones, is another run of it: nothing of those before is kept.
  void add(const v1::Pass& pass, uint32_t epoch, Fd memory);
  // The job's worker is gone. Where there are too many ended jobs, or bytes of them, the oldest one
  // of the owner who has the most is dropped.
  void end(const v1::Pass& pass);

  // Those of all users' jobs of this name, or of all jobs if it is empty.
  std::vector<KeptRecorder> find(const std::string& job) const;

 private:
  using Key = std::tuple<std::string, uint32_t, std::string>;  // Job, user, subject.
  struct Recorder {
    std::shared_ptr<const Fd> memory;
    bool ended = false;
  };
  struct Job {
    v1::Pass pass;
    std::map<uint32_t, Recorder> recorders;  // By epoch.
    std::optional<TimePoint> ended;
  };

  // What is kept of the ended jobs of one owner, or of all.
  struct Kept {
    int64_t jobs = 0;
    uint64_t bytes = 0;
  };

  static uint64_t bytes_of(const Job& job);
  static Key key_of(const v1::Pass& pass) { return {pass.job(), pass.uid(), pass.subject()}; }
  void make_room();
  void drop_expired();

  Loop& loop_;
  const Settings& settings_;
  const uint64_t ended_bytes_max_;
  std::map<Key, Job> jobs_;
  Loop::TimerId timer_ = 0;
};

}  // namespace tutti

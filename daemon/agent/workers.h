// The workers of this node: starts them, adopts those that an earlier agent started, hands them
// trainers, and notices their end. Loop thread only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/agent/ended_jobs.h"
#include "daemon/agent/quotas.h"
#include "daemon/agent/traces.h"
#include "daemon/agent/worker_log.h"
#include "daemon/base/credentials.h"
#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/base/settings.h"
#include "daemon/session/session.h"
#include "proto/mesh.pb.h"
#include "proto/session.pb.h"

namespace tutti {

class Workers {
 public:
  // `settings` are passed on to workers, so no value may be left open. `credentials` say by which
  // passes workers of earlier agents are known again.
  // The recorders of workers go to `traces`, and what they said last to `ended`.
  Workers(Loop& loop, const Settings& settings, const Credentials& credentials, Traces& traces,
          EndedJobs& ended);
  ~Workers();  // The workers live on.

  // What new workers are given, and the limits, from now on.
  void set_settings(const Settings& settings) { settings_ = settings; }

  // Connects to the running workers and waits a while for their reports.
  Status adopt_running();

  // Hands the trainer to the worker of its pass (job, user, subject), starting one if there is
  // none. ABORTED: the worker is ending; the client should join again. RESOURCE_EXHAUSTED: the user
  // or the node has as much as it may.
  Status hand_over(const v1::Hello& hello, const v1::Pass& pass, const PeerCredentials& peer,
                   int socket);

  // Calls `done` once with every worker's report, the last known for those that do not answer
  // within `timeout`.
  using Reports = std::vector<v1::WorkerReport>;
  void report(Millis timeout, std::function<void(Reports)> done);

  // What users have of this node, as far as their workers have told.
  Quotas quotas() const;

  // Calls `done` once no worker has ranks any more, or after `timeout`.
  void await_end(Millis timeout, std::function<void()> done);

  // Tells every worker to fail its operations and exit; calls `done` once all have, or after
  // `timeout`.
  void stop(Millis timeout, std::function<void()> done);

  // The same of one job, and of its owner alone if that is set, but does not wait. Returns how many
  // workers there were.
  int stop_job(const v1::StopJobRequest& request);

  // Tell all workers, now and when they start, which GPUs have failed and who coordinates. One that
  // does not read for a while gets what is true then.
  void set_failed_gpus(const v1::AgentToWorker::FailedGpus& failed);
  void set_coordinator(const v1::AgentToWorker::Coordinator& coordinator);

  // To be called on SIGCHLD.
  void reap();

 private:
  struct Worker {
    Fd socket;
    std::unique_ptr<WorkerLog> log;
    pid_t child = 0;        // 0: started by an earlier agent.
    bool is_known = false;  // Its pass is known. Until then it is not used.
    v1::Pass pass;          // Whose it is.
    v1::WorkerReport last;  // Has at least its job and pid.
    bool report_pending = false;
    bool is_stopped = false;   // It was asked to exit.
    bool is_untold = false;    // Its queue had no room for something that it must know.
    uint64_t handed_over = 0;  // Trainers that it was sent, by all agents.
    TimePoint judged_at{};     // When an epoch of it was judged last.
    uint64_t ranks() const;    // That it has, or is about to have.
  };
  // A worker that hung up.
  struct Gone {
    v1::Pass pass;
    v1::WorkerReport last;
    bool is_stopped = false;
    v1::TraceReply trace;
  };
  struct Wait {
    Loop::TimerId timer;
    std::function<bool()> is_done;
    std::function<void()> done;
  };
  using Entry = std::map<std::string, Worker>::iterator;  // By socket path.

  std::string path_of(const v1::Pass& pass) const;
  Result<Entry> start(const v1::Pass& pass, const PeerCredentials& peer,
                      std::vector<uint32_t> groups);
  Result<pid_t> spawn(const v1::Pass& pass, const PeerCredentials& peer,
                      std::vector<uint32_t> groups, int listener, const std::string& log) const;
  Result<Entry> connect(const std::string& path);
  Status hand_over(Entry entry, const v1::Hello& hello, const v1::Pass& pass,
                   const PeerCredentials& peer, int socket);
  void read_packets(const std::string& path);
  void on_report(Entry entry, Packet packet);
  bool is_ours(const std::string& path, const v1::Pass& pass) const;
  void on_hangup(Entry entry);
  void on_adopted_end(const Gone& gone);
  v1::TraceReply trace_of(const v1::Pass& pass) const;
  void remember(const Gone& gone, const std::string& worker_end);
  void remember_epoch(Worker& worker, const v1::WorkerReport& report);
  void tell(Worker& worker, const std::string& bytes);
  void tell_all(Worker& worker);  // That workers must know.
  void ask_workers_of(uint32_t uid);
  static void ask(Worker& worker);
  bool reports_pending() const;
  bool has_ranks() const;
  void ask_all_again();
  // Calls `done` once: when `is_done` returns true, or after `timeout`.
  void call_when(Millis timeout, std::function<bool()> is_done, std::function<void()> done);
  void check_waits();

  Loop& loop_;
  Settings settings_;
  const Credentials credentials_;
  Traces& traces_;
  EndedJobs& ended_;
  const std::string directory_;
  std::string failed_gpus_;                     // As a message.
  v1::AgentToWorker::Coordinator coordinator_;  // Empty: it is in the settings.
  TimePoint refresh_at_{};                      // When an obstacle is sent again.
  std::map<std::string, Worker> workers_;
  std::map<pid_t, Gone> ending_;  // Children that hung up, not yet reaped, by pid.
  std::map<uint64_t, Wait> waits_;
  uint64_t last_wait_ = 0;
  Loop::TimerId ask_timer_ = 0;
  Loop::TimerId tell_timer_ = 0;  // 0: no worker is untold.
};

}  // namespace tutti

// The workers of this node: starts them, adopts those that an earlier agent started, hands them
// trainers, and notices their end. Loop thread only.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/base/settings.h"
#include "daemon/session/session.h"
#include "proto/session.pb.h"

namespace tutti {

class Workers {
 public:
  // `settings` are passed on to workers, so no value may be left open.
  Workers(Loop& loop, const Settings& settings);
  ~Workers();  // The workers live on.

  // Connects to the running workers and waits a while for their reports.
  Status adopt_running();

  // Hands the trainer to its job's worker, starting one if there is none. PERMISSION_DENIED: the
  // job belongs to another user. ABORTED: the worker is ending; the client should join again.
  Status adopt(const v1::Hello& hello, const PeerCredentials& peer, int socket);

  // Calls `done` once with every worker's report, the last known for those that do not answer
  // within `timeout`.
  using Reports = std::vector<v1::WorkerReport>;
  void report(Millis timeout, std::function<void(Reports)> done);

  // Tells every worker to fail its operations and exit; calls `done` once all have, or after
  // `timeout`.
  void stop(Millis timeout, std::function<void()> done);

  // Tells all workers, now and when they start, which GPUs have failed.
  void set_failed_gpus(const v1::AgentToWorker::FailedGpus& failed);

  // To be called on SIGCHLD.
  void reap();

 private:
  struct Worker {
    Fd socket;
    pid_t child = 0;        // 0: started by an earlier agent.
    bool is_known = false;  // Its job and user are known. Until then it is not used.
    uint32_t uid = 0;       // The job's owner.
    v1::WorkerReport last;  // Has at least its job and pid.
    bool report_pending = false;
  };
  struct Wait {
    Loop::TimerId timer;
    std::function<bool()> is_done;
    std::function<void()> done;
  };
  using Entry = std::map<std::string, Worker>::iterator;  // By socket path.

  std::string path_of(const std::string& job) const;
  Result<Entry> start(const v1::Hello& hello, const PeerCredentials& peer);
  Result<pid_t> spawn(const std::string& job, const PeerCredentials& peer, int listener) const;
  Result<Entry> connect(const std::string& path);
  Status hand_over(Entry entry, const v1::Hello& hello, const PeerCredentials& peer, int socket);
  void read_packets(const std::string& path);
  void on_report(Worker& worker, const std::string& bytes);
  void on_hangup(Entry entry);
  bool reports_pending() const;
  // Calls `done` once: when `is_done` returns true, or after `timeout`.
  void call_when(Millis timeout, std::function<bool()> is_done, std::function<void()> done);
  void check_waits();

  Loop& loop_;
  const Settings settings_;
  const std::string directory_;
  std::string failed_gpus_;  // As a message.
  std::map<std::string, Worker> workers_;
  std::map<pid_t, std::string> ending_;  // Children that hung up, not yet reaped: job by pid.
  std::map<uint64_t, Wait> waits_;
  uint64_t last_wait_ = 0;
};

}  // namespace tutti

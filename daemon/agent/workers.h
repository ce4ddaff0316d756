// The workers of this node: starting them, finding those an earlier agent started, handing them
// trainers, noticing their end. All on the loop's thread.
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
  // `settings`: what workers are told, all values resolved.
  Workers(Loop& loop, const Settings& settings);
  ~Workers();  // The workers live on.

  // Takes over the workers that are there, waiting a while for each to say what it does.
  Status find_live();

  // Hands the trainer to its job's worker, which is started where there is none. PERMISSION_DENIED
  // where the job belongs to another user.
  Status adopt(const v1::Hello& hello, const PeerCredentials& peer, int socket);

  // Calls `done` once: with every worker's report, the last known for those that do not answer
  // within `patience`.
  using Reports = std::vector<v1::WorkerReport>;
  void report(Millis patience, std::function<void(Reports)> done);

  // Tells every worker to fail what runs, and end; calls `done` when all have ended, or `patience`
  // is over.
  void stop(Millis patience, std::function<void()> done);

  // A child has ended (SIGCHLD).
  void reap();

 private:
  struct Worker {
    std::string path;
    Fd socket;
    pid_t child = 0;        // 0: started by an earlier agent.
    bool is_known = false;  // Whose it is. Until then it is not used.
    uint32_t uid = 0;       // Who started the job.
    v1::WorkerReport last;  // At least its job and pid.
    bool owes_report = false;
  };
  struct Wait {
    Loop::TimerId timer;
    std::function<bool()> is_over;
    std::function<void()> done;
  };
  using Entry = std::map<std::string, Worker>::iterator;  // By socket path.

  std::string path_of(const std::string& job) const;
  Result<Entry> start(const v1::Hello& hello, const PeerCredentials& peer);
  Result<pid_t> spawn(const std::string& job, const PeerCredentials& peer, int listener) const;
  Result<Entry> connect(const std::string& path);
  Status hand_over(Entry entry, const v1::Hello& hello, const PeerCredentials& peer, int socket);
  void read_packets(const std::string& path);
  void take_report(Worker& worker, const std::string& bytes);
  void lose(Entry entry);
  bool owe_reports() const;
  // Calls `done` once, soon: when `is_over`, or `patience` is.
  void when(Millis patience, std::function<bool()> is_over, std::function<void()> done);
  void check_waits();

  Loop& loop_;
  const Settings settings_;
  const std::string directory_;
  std::map<std::string, Worker> workers_;
  std::map<pid_t, std::string> ending_;  // Children that hung up: pid and job.
  std::map<uint64_t, Wait> waits_;
  uint64_t last_wait_ = 0;
};

}  // namespace tutti

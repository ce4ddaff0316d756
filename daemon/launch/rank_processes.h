// The processes of one run's ranks: starts the same command once per rank, prints what they write,
// and waits until all have ended.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "daemon/launch/child_processes.h"
#include "daemon/launch/line_prefixer.h"
#include "daemon/launch/local_mesh.h"

namespace tutti {

struct RankOptions {
  std::vector<int> per_host;
  std::string job;
  std::vector<std::string> command;
  // CUDA_VISIBLE_DEVICES of each rank; empty: that of this process for all.
  std::vector<std::string> gpus;
  bool keep_going = false;  // Do not end the others when a rank fails.
  bool label = false;       // Put "[rank] " before each line, not only those of standard error.
};

// The place of a rank in the job and on its host.
struct RankPlace {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
};

// Returns the caller's environment with TUTTI_*, RANK, MASTER_ADDR and so on as the rank needs
// them. `rendezvous`: host:port.
Environment rank_environment(const LocalMesh::Host& host, const std::string& job,
                             const RankPlace& place, const std::string& rendezvous);

class RankProcesses {
 public:
  RankProcesses(Loop& loop, ChildProcesses& children, const LocalMesh& mesh, RankOptions options);
  ~RankProcesses();

  // Starts all ranks, waits until they end, and returns the exit code of the one that failed first
  // in the job, or 0. When one fails the others get two seconds to end (ten, while one that left
  // the job earlier still runs), then SIGTERM, then SIGKILL.
  Result<int> run();
  // After run() has returned a failure: what agents and workers had complained of before any rank
  // was asked to end. What they say of that is no cause.
  const std::string& warnings() const { return warnings_; }
  // "rank 1 (host a, pid 7) exited with code 3", of the rank that failed first; "" where none did.
  std::string culprit() const;
  // Sends the signal to all ranks, and SIGKILL to those that still run two seconds later.
  void interrupt(int signal);

 private:
  struct Rank {
    explicit Rank(int rank) : prefixer(rank) {}
    pid_t pid = 0;
    std::string host;
    std::optional<int> code;  // nullopt: it runs.
    Fd pipe;                  // The read end of its prefixed output, until end of file.
    LinePrefixer prefixer;
  };

  Status start(const LocalMesh::Host& host, const RankPlace& place);
  Status start_all();
  Status connect_output(int rank, SpawnOptions& options, Fd& write_end);
  bool has_prefixes() const { return options_.label || ranks_.size() > 1; }
  void on_ended(int rank, int code);
  void determine_first_failure(bool must_decide);
  void report_first_failure(int rank);
  void terminate_others();
  std::string running_ranks() const;
  void signal_all(int signal);
  // Closes the rank's pipe at end of file, or when this process's output has no reader: the rank's
  // next write then fails as if it had written to that output itself.
  void read_output(int rank);
  bool print(const std::string& lines) const;  // False: the output has no reader.

  Loop& loop_;
  ChildProcesses& children_;
  const LocalMesh& mesh_;
  RankOptions options_;
  std::vector<Rank> ranks_;
  size_t running_ = 0;
  std::vector<int> failed_;         // Ranks in the order in which their processes ended.
  TimePoint failed_at_{};           // When the first of them ended.
  JobRecord record_;                // As last read.
  Loop::TimerId record_timer_ = 0;  // Reads it again.
  int failure_ = 0;                 // Exit code of the first failure, once it is determined.
  int culprit_ = -1;                // Its rank.
  std::string warnings_;
  bool ending_ = false;  // The ranks were asked to end: their codes no longer count.
};

}  // namespace tutti

// The ranks of one run: the same command, once a rank, watched until all have ended.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "daemon/launch/labelled.h"
#include "daemon/launch/local_mesh.h"
#include "daemon/launch/process.h"

namespace tutti {

struct RanksOptions {
  std::vector<int> per_host;
  std::string job;
  std::vector<std::string> command;
  bool keep_going = false;  // Leave the others be when a rank fails.
  bool label = false;       // Put "[rank] " before each line of output.
};

// Where a rank is among the others.
struct RankPlace {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
};

// What a rank finds in its environment, beside the caller's. `rendezvous`: host:port.
Environment rank_environment(const LocalMesh::Host& host, const std::string& job,
                             const RankPlace& place, const std::string& rendezvous);

class Ranks {
 public:
  Ranks(Loop& loop, ChildProcesses& nursery, const LocalMesh& mesh, RanksOptions options);
  ~Ranks();

  // Starts them all, waits for them all; the exit code of the one whose failure came first in the
  // job, or 0. When one fails the others get two seconds (ten, where one that left the job earlier
  // still runs), then SIGTERM, then SIGKILL.
  Result<int> run();
  // Passes a signal on to all ranks, and ends them if that does not.
  void interrupt(int signal);

 private:
  struct Rank {
    explicit Rank(int rank) : labelled(rank) {}
    pid_t pid = 0;
    std::string host;
    std::optional<int> code;  // nullopt: it runs.
    Fd pipe;                  // The read end of what it writes with labels, until its end.
    Labelled labelled;
  };

  Status start(const LocalMesh::Host& host, const RankPlace& place);
  Status start_all();
  Status connect_output(int rank, SpawnOptions& options, Fd& write_end);
  bool has_labels() const { return options_.label || ranks_.size() > 1; }
  void on_ended(int rank, int code);
  void find_first_failure(bool now);
  void name_failed(int rank);
  void end_others();
  std::string running_ranks() const;
  void signal_all(int signal);
  // Closes the rank's pipe at its end, or once nobody reads this process's output: the rank's next
  // write then fails as if it had written there itself.
  void read_output(int rank);
  bool print(const std::string& lines) const;  // False: nobody reads them.

  Loop& loop_;
  ChildProcesses& children_;
  const LocalMesh& mesh_;
  RanksOptions options_;
  std::vector<Rank> ranks_;
  size_t running_ = 0;
  std::vector<int> failed_;          // In the order of their processes' ends.
  JobRecord record_;                 // Of the job, as it was last told.
  TimePoint failed_at_{};            // The first of them.
  Loop::TimerId next_question_ = 0;  // To the job's record, about them.
  int failure_ = 0;                  // Once it is known whose.
  bool ending_ = false;
};

}  // namespace tutti

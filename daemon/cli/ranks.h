// The ranks of one run: the same command, once a rank, watched until all have ended.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "daemon/cli/local_mesh.h"
#include "daemon/cli/process.h"

namespace tutti {

struct RanksOptions {
  std::vector<int> per_host;
  std::string job;
  std::vector<std::string> command;
  bool keep_going = false;  // Leave the others be when a rank fails.
  bool label = false;       // Put "[rank] " before each line of output.
};

// What a rank finds in its environment, beside the caller's.
Environment rank_environment(const LocalMesh::Host& host, const RanksOptions& options, int rank,
                             int local_rank, int local_world_size, int world_size);

class Ranks {
 public:
  Ranks(Loop& loop, Nursery& nursery, const LocalMesh& mesh, RanksOptions options);

  // Starts them all, waits for them all; the exit code of the first that failed, or 0. When one
  // fails the others get two seconds, then SIGTERM, then SIGKILL.
  Result<int> run();
  // Passes a signal on to all ranks, and ends them if that does not.
  void interrupt(int signal);

 private:
  struct Rank {
    pid_t pid = 0;
    std::string host;
    Fd output;            // With label: the read end of its pipe.
    std::string pending;  // Of an unfinished line.
  };

  Status start(int rank, const LocalMesh::Host& host, int local_rank, int local_world_size);
  Status start_all();
  void on_ended(int rank, int code);
  void end_others();
  void signal_all(int signal);
  void read_output(int rank);
  void print_lines(int rank, bool all);

  Loop& loop_;
  Nursery& nursery_;
  const LocalMesh& mesh_;
  RanksOptions options_;
  std::vector<Rank> ranks_;
  size_t running_ = 0;
  int failure_ = 0;
  bool ending_ = false;
};

}  // namespace tutti

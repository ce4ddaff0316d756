// Starting a worker: a process of its own session that outlives the agent.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "daemon/base/status.h"

namespace tutti {

// The descriptor a worker finds its listening socket at.
inline constexpr int kControlFd = 3;

struct WorkerProgram {
  std::string binary;
  std::vector<std::string> arguments;              // Without the program's name.
  std::map<std::string, std::string> environment;  // Added to, or in place of, this process's own.
  uint32_t uid = 0;                                // Whom it runs as, where this process is root.
  uint32_t gid = 0;
};

// Runs it with `control` as descriptor 3 and no other but stdin (/dev/null), stdout and stderr.
// NOT_FOUND or PERMISSION_DENIED, with the path, where it cannot be run.
Result<pid_t> spawn_worker(const WorkerProgram& program, int control);

// "ended with exit code 1", "was killed by signal 9 (Killed)".
std::string describe_end(int wait_status);

}  // namespace tutti

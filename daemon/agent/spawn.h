// Starts a worker as a process in a session of its own, so that it outlives the agent.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/status.h"

namespace tutti {

// The descriptor of a worker's listening socket.
inline constexpr int kControlFd = 3;

struct WorkerProgram {
  std::string binary;
  std::vector<std::string> arguments;              // Without the program's name.
  std::map<std::string, std::string> environment;  // All of it.
  uint32_t uid = 0;                                // The user it runs as, if this process is root.
  uint32_t gid = 0;
  std::vector<uint32_t> groups;  // Its supplementary ones, too.
};

// Variables of this process whose names are in the list: names with spaces between them, of which
// one that ends with * stands for all that begin so.
std::map<std::string, std::string> inherited_environment(std::string_view names);

// Runs `program` with `control` as descriptor 3 and `output` as stdout and stderr; besides, it has
// only stdin (/dev/null). It gains no privileges by what it executes, has no capabilities (of
// root's, those alone that capabilities.h names), and ends for lack of memory before this process
// does. NOT_FOUND or PERMISSION_DENIED: the binary cannot be run; the message has its path.
Result<pid_t> spawn_worker(const WorkerProgram& program, int control, int output);

// "ended with exit code 1", "was killed by signal 9 (Killed)".
std::string describe_end(int wait_status);

}  // namespace tutti

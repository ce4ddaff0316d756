// What a worker writes to its standard output and error. The job's user can make it write anything,
// so it has no descriptor of the agent's log: it writes into a pipe with a name, from which the
// agent takes lines, cleans them, and logs them as the job's. Nothing that the agent does, its end
// included, blocks or ends the worker; the next agent reads on.
#pragma once

#include <string>

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/base/status.h"

namespace tutti {

class WorkerLog {
 public:
  // Makes the pipe again and returns the worker's end. One that is full does not block.
  static Result<Fd> make(const std::string& path);

  // For the pipe at `path`, if there is one.
  WorkerLog(Loop& loop, const std::string& path);
  ~WorkerLog();  // Takes what is left.
  WorkerLog(const WorkerLog&) = delete;
  WorkerLog& operator=(const WorkerLog&) = delete;

  // Reads from now on.
  void start(const std::string& job);

 private:
  void watch();
  void read_some();
  bool take_bytes();
  void take_lines();
  void write_line(const std::string& line);

  Loop& loop_;
  Fd pipe_;
  std::string job_;       // Empty: it has not started.
  std::string received_;  // Of a line that has not ended.
  size_t taken_ = 0;      // Bytes, in the second that began at second_.
  TimePoint second_;
  Loop::TimerId timer_ = 0;  // While more came in a second than is taken.
};

}  // namespace tutti

// Lines on their way to a descriptor that may block, such as that of a log: who adds one does not
// wait, and a thread of the queue's own writes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/base/loop.h"

namespace tutti {

class LineQueue {
 public:
  // Makes the line that stands where `count` lines are missing. Called on the queue's thread.
  using DescribeDropped = std::function<std::string(uint64_t count)>;

  // Writes to `fd`, which must stay open. Holds up to `lines_max` lines, at least 2; when they are
  // so many, drops new ones until half of the lines are written.
  LineQueue(int fd, size_t lines_max, DescribeDropped describe_dropped);
  LineQueue(const LineQueue&) = delete;
  LineQueue& operator=(const LineQueue&) = delete;
  ~LineQueue() { close(Millis(0)); }

  // `line` ends with a newline. Any thread.
  void add(std::string line);
  // Waits until all lines are written, at most for `limit`, and gives up those that are not. False:
  // there were such. Lines that are added later are dropped.
  bool close(Millis limit);
  uint64_t dropped() const;  // Lines since the beginning. Any thread.

 private:
  struct State;
  const std::shared_ptr<State> state_;  // Shared with the thread, which may be stuck in a write.
};

}  // namespace tutti

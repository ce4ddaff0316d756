// Reports this process's state to a service manager (the protocol of sd_notify).
#pragma once

#include <string>

#include "daemon/base/loop.h"

namespace tutti {

// Sends `state` ("READY=1") to the datagram socket at `path`, the value of NOTIFY_SOCKET; a leading
// '@' means an abstract address. Does nothing if the path is empty or nobody listens.
void notify(const std::string& path, const std::string& state);

// What is to be said when settings begin to be read again; READY=1 says that they have been.
std::string reloading_state();

// How often the manager wants to hear from this process, as WATCHDOG_USEC says; 0: never.
Micros watchdog_interval();

// Tells the manager, on the loop's thread and twice an interval, that the loop turns. A loop that
// hangs is found, and the manager kills and restarts the process.
class Watchdog {
 public:
  Watchdog(Loop& loop, std::string path, Micros interval);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() { loop_.cancel(timer_); }

 private:
  void feed();

  Loop& loop_;
  const std::string path_;
  const Micros interval_;
  Loop::TimerId timer_ = 0;
};

}  // namespace tutti

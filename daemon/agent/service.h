// The agent under a service manager, or a terminal: what signals mean, reading the settings again,
// and what the manager gets.
#pragma once

#include <string>

#include "daemon/agent/agent.h"
#include "daemon/agent/flags.h"
#include "daemon/agent/notify.h"
#include "daemon/base/loop.h"

namespace tutti {

// Loop thread only.
class Service {
 public:
  // `manager` is the manager's socket, which may be empty. `flags` are read again on SIGHUP.
  Service(Loop& loop, Agent& agent, std::string manager, const Flags& flags,
          Configuration configuration);

  ~Service() { loop_.cancel(state_timer_); }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // SIGCHLD: collects workers. SIGHUP: reads the settings again. SIGTERM and SIGINT: ends the
  // agent, after a SIGTERM as drain_ms says; the second one ends it at once.
  void on_signal(int signal);

  // Tells the manager that the agent serves; from now on the watchdog watches.
  void serve();

 private:
  void reload();
  void apply(const Configuration& read);
  void end(int signal);
  void watch_state();  // Tells the manager when it changes.

  Loop& loop_;
  Agent& agent_;
  const std::string manager_;
  const Flags flags_;
  Configuration configuration_;  // As it was read, before the agent filled in anything.
  std::unique_ptr<Watchdog> watchdog_;
  bool is_ending_ = false;
  std::string state_;  // That the manager has.
  Loop::TimerId state_timer_ = 0;
};

}  // namespace tutti

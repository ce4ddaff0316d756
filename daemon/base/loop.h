// The event loop: descriptors, timers and posted functions, all run on the one thread that calls
// run(). A worker's whole state lives on its loop's thread, so nothing there takes a lock; other
// threads only post().
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/status.h"

namespace tutti {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Millis = std::chrono::milliseconds;
using Micros = std::chrono::microseconds;

class Loop {
 public:
  using Task = std::function<void()>;
  using Ready = std::function<void(uint32_t events)>;
  using TimerId = uint64_t;

  Loop();

  // Calls `ready` with epoll's events while `fd` is ready (level-triggered). The caller keeps `fd`
  // open until unwatch(). Both may be called from inside any callback.
  Status watch(int fd, uint32_t events, Ready ready);
  void unwatch(int fd);

  // Runs `task` once, at or after `when`. cancel() of a timer that ran, or of 0, does nothing.
  TimerId at(TimePoint when, Task task);
  void cancel(TimerId timer);

  // Any thread: runs `task` soon, in order of posting. Tasks still queued when the loop ends are
  // dropped. From the loop's own thread it costs no system call.
  void post(Task task);
  // Whether this is the thread that turns the loop; before its first turn, the one that made it.
  bool in_loop_thread() const;

  // For so long after something happened, asked each time, the loop looks for more before it
  // sleeps, since waking a sleeper takes longer than most of what it is woken for. It yields all
  // the while, and leaves it be for some time, longer each time in a row, where others want the
  // core. 0, as at first: it sleeps at once.
  void stay_awake(std::function<Micros()> after) { awake_ = std::move(after); }

  // Runs until stop(), which any thread or signal handler's descriptor may call.
  void run();
  void stop();
  // One turn: waits at most until `until` for something to do, does it, returns. For tests and
  // nested waits.
  void run_once(TimePoint until);

 private:
  using Events = std::array<epoll_event, 64>;

  void run_posted();
  void run_timers();
  bool has_posted();
  int wait(TimePoint until, Events& events);
  int look_around(TimePoint until, Events& events);
  int wait_ms(TimePoint until) const;

  Fd epoll_;
  Fd wake_;
  std::unordered_map<int, std::shared_ptr<Ready>> watched_;
  std::map<std::pair<TimePoint, TimerId>, Task> timers_;
  std::unordered_map<TimerId, TimePoint> timer_times_;
  TimerId next_timer_ = 1;
  bool stopping_ = false;  // Loop thread only.
  std::function<Micros()> awake_;
  TimePoint last_event_;
  TimePoint alone_again_;  // Others wanted the core; until then the loop sleeps at once.
  Millis leave_be_{0};
  std::atomic<std::thread::id> home_;  // Who turns the loop.

  std::mutex mutex_;
  std::vector<Task> posted_;  // Guarded by mutex_.
};

}  // namespace tutti

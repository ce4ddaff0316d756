// The event loop: descriptors, timers and posted tasks, all run on the thread that calls run(). A
// worker's state belongs to its loop's thread and needs no locks; other threads only post().
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

// Since 1970.
template <class Unit>
int64_t unix_time() {
  return std::chrono::floor<Unit>(std::chrono::system_clock::now()).time_since_epoch().count();
}

class Loop {
 public:
  using Task = std::function<void()>;
  using Ready = std::function<void(uint32_t events)>;
  using TimerId = uint64_t;

  Loop();

  // Calls `ready` with epoll's events while `fd` is ready (level-triggered). The caller keeps `fd`
  // open until unwatch(). Both may be called from inside any callback. No event from before
  // unwatch(), or before another watch(), reaches a later watch.
  Status watch(int fd, uint32_t events, Ready ready);
  void unwatch(int fd);

  // Runs `task` once, at or after `when`. cancel() of a timer that ran, or of 0, does nothing.
  TimerId at(TimePoint when, Task task);
  void cancel(TimerId timer);

  // Runs `task` soon, in the order of posting. Any thread. Tasks that are still queued when the
  // loop ends are dropped. Makes no system call on the loop's own thread.
  void post(Task task);
  // Whether the caller is on the loop's thread: the last that ran it, or else the one that made it.
  bool in_loop_thread() const;

  // Polls for as long as `after` returns after the last event, before it sleeps: waking a sleeping
  // thread takes longer than most events take. It yields between polls; where other threads want
  // the core it sleeps at once for a while, which doubles each time in a row. 0, the default: no
  // polling.
  void stay_awake(std::function<Micros()> after) { awake_ = std::move(after); }

  // Runs until stop(), which any thread or signal handler's descriptor may call.
  void run();
  void stop();
  // Waits at most until `until` for events, handles them and returns. For tests and nested waits.
  void run_once(TimePoint until);

 private:
  using Events = std::array<epoll_event, 64>;
  struct Watch {
    uint32_t generation;  // As in its events: those of an earlier watch may be fetched already.
    std::shared_ptr<Ready> ready;
  };

  void run_posted();
  void run_timers();
  bool has_posted();
  int wait(TimePoint until, Events& events);
  int poll(TimePoint until, Events& events);
  int wait_ms(TimePoint until) const;

  Fd epoll_;
  Fd wake_;
  std::unordered_map<int, Watch> watched_;
  uint32_t generation_ = 0;  // Of the last watch.
  std::map<std::pair<TimePoint, TimerId>, Task> timers_;
  std::unordered_map<TimerId, TimePoint> timer_times_;
  TimerId next_timer_ = 1;
  bool stopping_ = false;  // Loop thread only.
  std::function<Micros()> awake_;
  TimePoint last_event_;
  TimePoint poll_again_at_;  // Until then it does not poll: other threads wanted the core.
  Millis backoff_{0};
  std::atomic<std::thread::id> thread_;

  std::mutex mutex_;
  std::vector<Task> posted_;  // Guarded by mutex_.
  std::vector<Task> spare_;   // Memory for posted_. Loop thread only.
};

// A member of an object that callbacks use: after its end they do nothing, if guard() made them. It
// is the last member, or the object calls end() first. On the loop's thread, but for copies of what
// guard() made.
class Lifetime {
 public:
  Lifetime() = default;
  Lifetime(const Lifetime&) = delete;
  Lifetime& operator=(const Lifetime&) = delete;
  ~Lifetime() { end(); }

  void end() { *alive_ = false; }
  template <class Call>
  auto guard(Call call) const {
    return [alive = alive_, call = std::move(call)](auto&&... given) {
      if (*alive) call(std::forward<decltype(given)>(given)...);
    };
  }

 private:
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tutti

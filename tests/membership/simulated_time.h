// Simulated time: events of processes, which may be suspended or die, in the order of their times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <vector>

#include "daemon/base/loop.h"
#include "tests/support/random.h"

namespace tutti::simulated {

using Ms = int64_t;  // Simulated milliseconds.

// Its events are dropped when it is dead or another process has taken its place, and wait while it
// is suspended.
struct Process {
  int life = 1;
  bool alive = true;
  Ms suspended_until = 0;
};

class Timeline {
 public:
  Timeline(uint64_t seed, bool traces) : random(seed), traces_(traces) {}

  Ms now() const { return now_; }
  TimePoint time() const { return kBegin + Millis(now_); }
  static Ms ms(TimePoint when) { return std::chrono::duration_cast<Millis>(when - kBegin).count(); }
  // `owner` null: the world's.
  void at(Ms when, const Process* owner, std::function<void()> run) {
    events_.push({std::max(when, now_), order_++, owner, owner == nullptr ? 0 : owner->life,
                  std::move(run)});
  }
  void after(Ms time, const Process* owner, std::function<void()> run) {
    at(now_ + time, owner, std::move(run));
  }
  // Runs events until `limit`, or until a promise is broken or there are no events.
  void run(Ms limit) {
    while (!events_.empty() && wrong_.empty() && events_.top().at <= limit) {
      Event event = events_.top();
      events_.pop();
      now_ = event.at;
      ++events_run_;
      if (event.owner != nullptr) {
        if (!event.owner->alive || event.owner->life != event.life) continue;
        if (event.owner->suspended_until > now_) {
          at(event.owner->suspended_until, event.owner, std::move(event.run));
          continue;
        }
      }
      event.run();
    }
    now_ = std::max(now_, limit);
  }

  void say(const std::string& who, const std::string& text) {
    if (traces_) trace_.push_back(std::to_string(now_) + " ms, " + who + ": " + text);
  }
  bool traces() const { return traces_; }
  void wrong(const std::string& text) {
    if (wrong_.empty()) wrong_ = "at " + std::to_string(now_) + " ms: " + text;
  }
  const std::string& broken_promise() const { return wrong_; }
  const std::vector<std::string>& trace() const { return trace_; }
  uint64_t events_run() const { return events_run_; }

  Random random;

 private:
  struct Event {
    Ms at;
    uint64_t order;
    const Process* owner;
    int life;
    std::function<void()> run;
    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  static constexpr TimePoint kBegin{Millis(3'600'000)};

  const bool traces_;
  Ms now_ = 0;
  uint64_t order_ = 0;
  uint64_t events_run_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::string wrong_;
  std::vector<std::string> trace_;
};

}  // namespace tutti::simulated

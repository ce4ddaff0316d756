// How a trainer waits before it sleeps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tutti::client {

// Whether the host has a core for each of so many ranks: then a waiting one may spin.
bool has_cores_for(uint32_t ranks);

// What a process knows of the cores it waits on.
struct Cores {
  bool enough = false;               // For all ranks of the host.
  bool spare = false;                // One more, for their worker.
  std::atomic<bool> shared = false;  // The last yield let somebody else run.
};

// Waiting without sleeping, for a while: waking a sleeper costs some 30 us, so what is likely to
// end sooner is worth staying awake for. Where ranks outnumber cores, or something else wants this
// core, a spinner only keeps the one it waits for from running; then every turn gives the core
// away.
class Backoff {
 public:
  explicit Backoff(Cores& cores) : cores_(cores) {}
  // One short wait; false: it has been long enough (some 2 ms at most, and what the last yield
  // lasts), sleep. Who waits for a worker that has no core of its own sleeps at once: to yield to
  // it may not work, as a scheduler that divides a core among groups of processes lets who yields
  // go on.
  enum class Awaited { ranks, worker };
  bool pause(Awaited awaited = Awaited::ranks);
  void reset() { turns_ = 0; }

 private:
  using Clock = std::chrono::steady_clock;
  void yield();

  Cores& cores_;
  uint32_t turns_ = 0;
  Clock::time_point began_;  // To yield.
};

}  // namespace tutti::client

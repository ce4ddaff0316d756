// How a rank waits before it sleeps: it spins, then yields its core.
#pragma once

#include <atomic>
#include <cstdint>

#include "client/rank/clock.h"

namespace tutti::client {

// Whether this process may use at least one core for each of `ranks` ranks: as it is bound, and by
// the quota of its control groups.
bool has_cores_for(uint32_t ranks);

// What a process knows about the cores that it waits on.
struct Cores {
  bool enough = false;               // One for each rank of the host, so a rank may spin.
  bool spare = false;                // And one more for their worker.
  std::atomic<bool> shared = false;  // The last yield let another process run.
};

// A bounded wait without sleep. To wake a sleeper costs some 30 us, so it pays to stay awake for
// what is likely to end sooner. If ranks outnumber cores, or another process uses this core, a rank
// that spins only keeps the awaited one from running: then every turn yields.
class Backoff {
 public:
  enum class Awaited { ranks, worker };

  explicit Backoff(Cores& cores) : cores_(cores) {}
  // One short wait. False: it has been long enough, so sleep (after at most 2 ms and the duration
  // of the last yield). Immediately false for a worker without a core of its own: a scheduler that
  // divides a core among groups of processes may not run the worker when a rank yields.
  bool pause(Awaited awaited = Awaited::ranks);
  // Starts a new wait.
  void reset() { turns_ = 0; }

 private:
  void yield();

  Cores& cores_;
  uint32_t turns_ = 0;
  TimePoint began_;  // When the first yield of this wait began.
};

}  // namespace tutti::client

// The two ends of a completion's wait, and how a trainer waits before it sleeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "proto/segment.h"

namespace tutti::client {

// Sleeps until somebody completes or stirs, or the time is up. Says so in the state, so that nobody
// pays for waking who is awake. `idle` is asked after that: who made work before it saw a sleeper
// did not stir, and so is seen here.
void sleep_while_pending(std::atomic<uint32_t>& state, int64_t timeout_us,
                         const std::function<bool()>& idle);

// Ends the operation of that number, which the ranks folded, and wakes who sleeps. Nothing, where
// it is ended already.
void complete(Completion& completion, uint64_t number);

// Wakes who sleeps though the operation goes on: there is work to share.
void stir(std::atomic<uint32_t>& state);

// Whether the host has a core for each of so many ranks: then a waiting one may spin.
bool has_cores_for(uint32_t ranks);

// What a process knows of the cores it waits on.
struct Cores {
  bool enough = false;               // For all ranks of the host.
  std::atomic<bool> shared = false;  // The last yield let somebody else run.
};

// Waiting without sleeping, for a while: waking a sleeper costs some 30 us, so what is likely to
// end sooner is worth staying awake for. Where ranks outnumber cores, or something else wants this
// core, a spinner only keeps the one it waits for from running; then every turn gives the core
// away.
class Rest {
 public:
  explicit Rest(Cores& cores) : cores_(cores) {}
  // One short wait; false: it has been long enough, sleep. A worker that runs the operation shares
  // the cores with those who wait for it: they give them up soon, for each yield counts as a turn
  // of theirs and not of its.
  enum class Awaited { ranks, worker };
  bool pause(Awaited awaited = Awaited::ranks);
  void reset() { turns_ = 0; }

 private:
  void yield();

  Cores& cores_;
  uint32_t turns_ = 0;
};

}  // namespace tutti::client

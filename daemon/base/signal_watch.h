// Signals as events of a loop.
#pragma once

#include <functional>
#include <initializer_list>

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"

namespace tutti {

// Blocks the signals for this thread and those it starts, so that a SignalWatch receives them. Call
// it before any other thread exists.
void block_signals(std::initializer_list<int> signals);
void unblock_signals(std::initializer_list<int> signals);  // For this thread alone.

class SignalWatch {
 public:
  // Calls `handler` with each of these signals that arrives, on the loop's thread. They must be
  // blocked in all threads.
  SignalWatch(Loop& loop, std::initializer_list<int> signals, std::function<void(int)> handler);
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch() { loop_.unwatch(signals_.get()); }

 private:
  Loop& loop_;
  Fd signals_;
};

}  // namespace tutti

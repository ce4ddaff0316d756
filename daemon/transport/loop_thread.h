// An event loop with a thread of its own that runs it.
#pragma once

#include <thread>

#include "daemon/base/loop.h"

namespace tutti {

class LoopThread {
 public:
  LoopThread() : thread_([this] { loop.run(); }) {}
  // Tasks posted before still run. Must not be called on the loop's thread.
  ~LoopThread() {
    loop.stop();
    thread_.join();
  }
  Loop loop;

 private:
  std::thread thread_;
};

}  // namespace tutti

// A thread of the library for one group: it waits for operations on behalf of callers who must not
// block, or passes their tensors.
#pragma once

#include <functional>
#include <memory>

#include "daemon/base/status.h"

namespace tutti::client {

// Safe from any thread. The thread starts with the first task and ends with the TaskThread, or
// after it with the last task. It keeps alive what its tasks hold.
class TaskThread {
 public:
  // `name`: of the thread; at most 15 bytes.
  explicit TaskThread(const char* name);
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;
  // Tasks that did not run yet run all the same. May be called on the thread itself.
  ~TaskThread();

  // Runs `task` once, on the thread, after those of earlier calls. RESOURCE_EXHAUSTED: no thread
  // can be started, or memory ran out.
  Status add(std::function<void()> task) noexcept;

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace tutti::client

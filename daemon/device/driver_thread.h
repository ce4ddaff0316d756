// Calls of the driver that may take long, on a thread of their own. To free, the driver may wait
// for all streams of a context, which wait for ranks, which may wait for the caller. To make a
// context takes seconds while other processes make theirs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

namespace tutti {

class DriverThread {
 public:
  using Task = std::function<void()>;
  using TimePoint = std::chrono::steady_clock::time_point;
  // How long end() waits.
  static constexpr std::chrono::seconds kEndBound{3};

  DriverThread();
  ~DriverThread();
  DriverThread(const DriverThread&) = delete;
  DriverThread& operator=(const DriverThread&) = delete;

  // Calls `task` and destroys it, after what was given before; then calls `then`, unless end() was
  // called before. Both on the thread; `then` must not block. Any thread; never blocks.
  void run(Task task, Task then = nullptr);
  // Lets go of it soon, after what was given before.
  void free(std::shared_ptr<const void> resource);
  // Waits until all is done. False: the limit has passed; what is left belongs to the thread, which
  // ends with the process. Nothing is done afterwards.
  bool end(TimePoint limit = std::chrono::steady_clock::now() + kEndBound);

 private:
  struct Queue;
  static void work(Queue& queue);

  const std::shared_ptr<Queue> queue_;
  std::thread thread_;
  bool all_done_ = false;
};

// Keeps it until the process ends, because the driver may use it for as long.
void keep_until_exit(std::shared_ptr<const void> resource);

}  // namespace tutti

// A thread and its queue of tasks, run one at a time in the order they were posted; and some later.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti {

class Mailbox {
 public:
  using Task = std::function<void()>;
  using TimePoint = std::chrono::steady_clock::time_point;

  Mailbox() : thread_([this] { run(); }) {}
  ~Mailbox() { stop(); }

  // Any thread. After stop() the task is dropped unrun.
  void post(Task task);
  // Runs `task` at or after `when`. There is no cancelling: it finds out what is left to do.
  void post_at(TimePoint when, Task task);
  // Runs what was posted before, but for what is not due, then ends the thread. Not from a task.
  void stop();

 private:
  void run();
  void take_due_locked();
  void wait_locked(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable wake_;
  // Guarded by mutex_.
  std::vector<Task> tasks_;
  std::multimap<TimePoint, Task> later_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti

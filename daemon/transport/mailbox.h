// A thread and its queue of tasks, run one at a time in the order they were posted.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti {

class Mailbox {
 public:
  using Task = std::function<void()>;

  Mailbox() : thread_([this] { run(); }) {}
  ~Mailbox() { stop(); }

  // Any thread. After stop() the task is dropped unrun.
  void post(Task task);
  // Runs what was posted before, then ends the thread. Not from a task.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Task> tasks_;  // Guarded by mutex_, as is stopping_.
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti

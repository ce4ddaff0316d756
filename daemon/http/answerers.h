// Threads that do tasks in the order in which they were added.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace tutti {

class Answerers {
 public:
  using Task = std::function<void()>;

  // At most `waiting_max` tasks wait for a thread.
  Answerers(int threads, size_t waiting_max) : waiting_max_(waiting_max) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  // Waits for the tasks in progress, and drops those that wait.
  ~Answerers() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // False: too many wait, and this one is dropped.
  bool add(Task task) {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= waiting_max_) return false;
    waiting_.push_back(std::move(task));
    changed_.notify_one();
    return true;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (ending_) return;
      const Task task = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  const size_t waiting_max_;
  std::mutex mutex_;  // Guards the next three.
  std::condition_variable changed_;
  std::deque<Task> waiting_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tutti

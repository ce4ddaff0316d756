#include "daemon/transport/mailbox.h"

#include <utility>

namespace tutti {

void Mailbox::post(Task task) {
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  tasks_.push_back(std::move(task));
  if (tasks_.size() == 1) wake_.notify_one();
}

void Mailbox::post_at(TimePoint when, Task task) {
  std::lock_guard lock(mutex_);
  later_.emplace(when, std::move(task));
  wake_.notify_one();
}

void Mailbox::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Mailbox::take_due_locked() {
  const auto due = later_.upper_bound(std::chrono::steady_clock::now());
  for (auto each = later_.begin(); each != due; ++each) tasks_.push_back(std::move(each->second));
  later_.erase(later_.begin(), due);
}

void Mailbox::wait_locked(std::unique_lock<std::mutex>& lock) {
  take_due_locked();
  while (!stopping_ && tasks_.empty()) {
    if (later_.empty())
      wake_.wait(lock);
    else
      wake_.wait_until(lock, later_.begin()->first);
    take_due_locked();
  }
}

void Mailbox::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wait_locked(lock);
    if (tasks_.empty()) return;
    std::vector<Task> batch = std::exchange(tasks_, {});
    lock.unlock();
    for (Task& task : batch) {
      task();
      task = nullptr;  // What it holds goes before the next one runs.
    }
    lock.lock();
  }
}

}  // namespace tutti

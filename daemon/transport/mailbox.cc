#include "daemon/transport/mailbox.h"

#include <utility>

namespace tutti {

void Mailbox::post(Task task) {
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  tasks_.push_back(std::move(task));
  if (tasks_.size() == 1) wake_.notify_one();
}

void Mailbox::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Mailbox::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
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

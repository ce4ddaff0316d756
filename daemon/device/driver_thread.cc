#include "daemon/device/driver_thread.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti {

struct DriverThread::Queue {
  struct Entry {
    Task task;
    Task then;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Entry> entries;  // The first is being done.
  bool ends = false;
};

DriverThread::DriverThread()
    : queue_(std::make_shared<Queue>()), thread_([queue = queue_] { work(*queue); }) {}

DriverThread::~DriverThread() { end(); }

void DriverThread::run(Task task, Task then) {
  const std::lock_guard lock(queue_->mutex);
  queue_->entries.push_back({std::move(task), std::move(then)});
  queue_->changed.notify_all();
}

void DriverThread::free(std::shared_ptr<const void> resource) {
  run([resource = std::move(resource)] {});
}

bool DriverThread::end(TimePoint limit) {
  if (!thread_.joinable()) return all_done_;
  std::unique_lock lock(queue_->mutex);
  queue_->ends = true;
  queue_->changed.notify_all();
  const auto is_done = [this] { return queue_->entries.empty(); };
  all_done_ = queue_->changed.wait_until(lock, limit, is_done);
  lock.unlock();
  all_done_ ? thread_.join() : thread_.detach();
  return all_done_;
}

void DriverThread::work(Queue& queue) {
  std::unique_lock lock(queue.mutex);
  for (;;) {
    queue.changed.wait(lock, [&] { return queue.ends || !queue.entries.empty(); });
    if (queue.entries.empty()) return;
    Task first = std::move(queue.entries.front().task);
    lock.unlock();
    first();
    first = nullptr;
    lock.lock();
    // With the lock: what `then` uses may be gone once end() has returned.
    if (const Task& then = queue.entries.front().then; then && !queue.ends) then();
    queue.entries.pop_front();
    queue.changed.notify_all();
  }
}

// Reachable, so that it does not look lost.
void keep_until_exit(std::shared_ptr<const void> resource) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<const void>>();
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(resource));
}

}  // namespace tutti

#include "daemon/device/freeing_thread.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti {

struct FreeingThread::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<const void>> resources;  // The first is being freed.
  bool ends = false;
};

FreeingThread::FreeingThread()
    : queue_(std::make_shared<Queue>()), thread_([queue = queue_] { run(*queue); }) {}

FreeingThread::~FreeingThread() { end(); }

void FreeingThread::free(std::shared_ptr<const void> resource) {
  const std::lock_guard lock(queue_->mutex);
  queue_->resources.push_back(std::move(resource));
  queue_->changed.notify_all();
}

bool FreeingThread::end() {
  if (!thread_.joinable()) return all_freed_;
  std::unique_lock lock(queue_->mutex);
  queue_->ends = true;
  queue_->changed.notify_all();
  const auto is_done = [this] { return queue_->resources.empty(); };
  all_freed_ = queue_->changed.wait_for(lock, kEndBound, is_done);
  lock.unlock();
  all_freed_ ? thread_.join() : thread_.detach();
  return all_freed_;
}

void FreeingThread::run(Queue& queue) {
  std::unique_lock lock(queue.mutex);
  for (;;) {
    queue.changed.wait(lock, [&] { return queue.ends || !queue.resources.empty(); });
    if (queue.resources.empty()) return;
    std::shared_ptr<const void> first = std::move(queue.resources.front());
    lock.unlock();
    first.reset();
    lock.lock();
    queue.resources.pop_front();
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

// The writing side of a gRPC stream: queues messages of any thread and writes one at a time.
#pragma once

#include <deque>
#include <mutex>
#include <utility>

namespace tutti {

// `Reactor` is a ServerBidiReactor or ClientBidiReactor of Message. Its owner calls write_done() in
// OnWriteDone, and close() before it lets go of the call; nothing starts after that, since gRPC may
// have freed the call's parts. Thread-safe.
template <class Reactor, class Message>
class StreamWriter {
 public:
  explicit StreamWriter(Reactor& reactor) : reactor_(reactor) {}

  // Returns false if the queue is full: the peer does not read and should be disconnected.
  bool send(Message message) {
    const std::lock_guard lock(mutex_);
    if (closed_) return true;
    if (queue_.size() >= kQueuedMax) return false;
    queue_.push_back(std::move(message));
    if (queue_.size() == 1) reactor_.StartWrite(&queue_.front());
    return true;
  }

  // Returns true if close() was called during this write, which was the last.
  bool write_done(bool ok) {
    const std::lock_guard lock(mutex_);
    queue_.pop_front();
    if (closed_) return true;
    if (!ok) queue_.clear();
    if (!queue_.empty()) reactor_.StartWrite(&queue_.front());
    return false;
  }

  // Returns true if no write is in progress.
  bool close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    return queue_.empty();
  }

  // As close(), for a client's reactor. Tells the server that no more messages follow, unless the
  // stream was closed before, or a write is in progress, whose OnWriteDone then does it.
  void finish() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true) || !queue_.empty()) return;
    reactor_.StartWritesDone();
  }

 private:
  static constexpr size_t kQueuedMax = 10'000;

  Reactor& reactor_;
  std::mutex mutex_;
  std::deque<Message> queue_;  // The front is being written.
  bool closed_ = false;
};

}  // namespace tutti

// One side of a gRPC stream: sends from any thread, one message at a time, until the stream ends.
#pragma once

#include <deque>
#include <mutex>
#include <utility>

namespace tutti {

// `Reactor` is a ServerBidiReactor or ClientBidiReactor of Message. The owner passes on OnWriteDone
// and calls close() once, when it wants no more sent; no write is begun after that.
template <class Reactor, class Message>
class StreamWriter {
 public:
  explicit StreamWriter(Reactor& reactor) : reactor_(reactor) {}

  // False: the peer has not read its messages for so long that it should be cut off.
  bool send(Message message) {
    const std::lock_guard lock(mutex_);
    if (closed_) return true;
    if (queue_.size() >= kQueuedMax) return false;
    queue_.push_back(std::move(message));
    if (queue_.size() == 1) reactor_.StartWrite(&queue_.front());
    return true;
  }

  // True: close() was called while this write was under way, and now nothing is.
  bool write_done(bool ok) {
    const std::lock_guard lock(mutex_);
    queue_.pop_front();
    if (closed_) return true;
    if (!ok) queue_.clear();
    if (!queue_.empty()) reactor_.StartWrite(&queue_.front());
    return false;
  }

  // True: nothing is under way, and nothing will be.
  bool close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    return queue_.empty();
  }

 private:
  static constexpr size_t kQueuedMax = 100'000;

  Reactor& reactor_;
  std::mutex mutex_;
  std::deque<Message> queue_;  // The front is being written.
  bool closed_ = false;
};

}  // namespace tutti

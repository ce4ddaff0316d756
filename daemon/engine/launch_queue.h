// Work for the streams of GPUs, handed to the driver a little at a time. A stream takes some 1,000
// commands; the driver blocks who adds more until the stream moves on, and streams wait for ranks,
// while the loop's thread must never wait. Loop thread only.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>

#include "daemon/base/status.h"

namespace tutti {

class LaunchQueue {
 public:
  using Launch = std::function<Status()>;
  // 0: the streams have done all that was launched before.
  using Pending = std::shared_ptr<std::atomic<int>>;
  // Asks the streams to tell when they have done what was launched so far.
  using Mark = std::function<Result<Pending>()>;

  // `commands`: how many a stream gets at most.
  void add(Launch launch, size_t commands = 1) {
    waiting_.push_back({std::move(launch), commands});
  }
  // Launches what streams have room for, in order, up to the first failure. To be called again when
  // a mark is reported.
  Status run(const Mark& mark) {
    while (!waiting_.empty()) {
      const Result<bool> room = make_room(mark);
      if (!room.ok() || !*room) return room.status();
      const Entry next = std::move(waiting_.front());
      waiting_.pop_front();
      unmarked_ += next.commands;
      if (Status launched = next.launch(); !launched.ok()) return launched;
    }
    return {};
  }
  bool is_empty() const { return waiting_.empty(); }
  // What was not launched yet is not.
  void clear() { waiting_.clear(); }

 private:
  // Streams are asked to mark every so many commands; this many marks may be under way.
  static constexpr size_t kCommandsMarked = 64;
  static constexpr size_t kMarksMax = 2;

  struct Entry {
    Launch launch;
    size_t commands = 0;
  };

  Result<bool> make_room(const Mark& mark) {
    while (!marks_.empty() && *marks_.front() <= 0) marks_.pop_front();
    if (unmarked_ < kCommandsMarked) return true;
    if (marks_.size() >= kMarksMax) return false;
    const Result<Pending> marked = mark();
    if (!marked.ok()) return marked.status();
    marks_.push_back(*marked);
    unmarked_ = 0;
    return true;
  }

  std::deque<Entry> waiting_;
  std::deque<Pending> marks_;
  size_t unmarked_ = 0;
};

}  // namespace tutti

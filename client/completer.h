// A thread that waits for operations of one group and then calls functions, for callers that have
// an event loop and must not block.
#pragma once

#include <functional>
#include <memory>

#include "client/op_queue.h"

namespace tutti::client {

// Safe from any thread. The thread starts with the first operation and ends with the Completer, or
// after it with the last operation. It keeps alive what its operations need.
class Completer {
 public:
  Completer();
  Completer(const Completer&) = delete;
  Completer& operator=(const Completer&) = delete;
  // Functions that were not called yet are called all the same. May run on the thread itself.
  ~Completer();

  // An operation, its queue, the connection of the queue, and what to call.
  struct Entry {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<OpQueue> queue;
    std::shared_ptr<PendingOp> op;
    std::function<void()> done;
  };
  // Calls `done` once, on the thread, after the operation has ended and its result was copied out.
  // Operations are waited for in the order of these calls. RESOURCE_EXHAUSTED: no thread can be
  // started.
  Status add(Entry entry);

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace tutti::client

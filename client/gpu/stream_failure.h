// What fails in the order of a stream while nobody waits for it: a later call reports it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "client/rank/connection.h"

namespace tutti::client {

// For a group. Safe from any thread. Keep in a shared_ptr.
class StreamFailure : public std::enable_shared_from_this<StreamFailure> {
 public:
  // For one operation, which is under way until the last copy of this is gone.
  std::shared_ptr<StreamFailure> begin();
  // Keeps the outcome if it is a failure, and the first one.
  void keep(const Status& outcome);
  // What was kept, which is forgotten then; OK: nothing.
  Status take();
  // The error to return in place of `status`. Where the connection is lost, waits for operations
  // under way, one of which may have the reason.
  Status first_failure(const Connection& connection, Status status);

 private:
  std::atomic<int> under_way_ = 0;
  std::atomic<bool> any_ = false;  // Whether first_ is a failure: most calls ask, and none is.
  std::mutex mutex_;               // Guards what follows.
  Status first_;
};

}  // namespace tutti::client

// Messages whose tensors are in the memory of a GPU. They pass through pinned memory of the segment
// (staging.h): a stream copies what is sent there, and what was received from there. A thread of
// the group sees to the rest, so no caller waits for a stream.
//
//   send     the stream copies the tensor, and goes on; then the thread sends the copy
//   receive  the call waits for the message at once, as on the host; the stream waits until it is
//            there, and copies it. Without a stream the thread copies it, once the default stream
//            has reached the call.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "client/awaitable.h"
#include "client/device_memory.h"
#include "client/task_thread.h"

namespace tutti::client {

class DeviceMessage final : public Awaitable {
 public:
  using Start = std::function<Status(std::shared_ptr<Awaitable>*)>;

  struct Parts {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<StagedSides> staged;
    TimePoint deadline;
    bool on_stream = false;
    std::shared_ptr<StreamFailure> failure;  // Null: somebody waits for the message.
    // Of a message that is sent: where to, and what begins that.
    int32_t destination = -1;
    Start start = nullptr;
    // Of one that is received: the receive under way, and words whose `ready` the stream stores.
    std::shared_ptr<Awaitable> moving = nullptr;
    Words words;
  };
  explicit DeviceMessage(Parts parts) : parts_(std::move(parts)) {}

  Status wait(int64_t timeout_ms) override;
  bool poll() override;
  void abandon() override {}  // A stream may wait for it: it goes on.
  int32_t source() const override;

  // ---- For the thread ----

  // Does what can be done now. `may_start`: no earlier message to the same rank still has to.
  // False: nothing.
  bool advance(bool may_start);
  // The rank that it still has to be sent to; -1: none. Any thread.
  int32_t destination() const { return has_started_ ? -1 : parts_.destination; }
  void end(const Status& outcome);

 private:
  bool is_received() const { return parts_.destination < 0; }
  bool start();
  bool finish();

  Parts parts_;                            // The thread's alone, but for what never changes.
  std::atomic<bool> has_started_ = false;  // To be sent, or it never will.
  std::atomic<bool> has_ended_ = false;
  mutable std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  std::optional<Status> outcome_;
  int32_t source_ = -1;
};

// Safe from any thread. Keep in a shared_ptr.
class DeviceMessages : public std::enable_shared_from_this<DeviceMessages> {
 public:
  DeviceMessages() : thread_("tutti-messages") {}
  // Sees to the message until it has ended.
  void add(const std::shared_ptr<DeviceMessage>& message);
  // Waits until no earlier message still has to be sent to this rank, or until `limit`.
  void await_starts(int32_t destination, TimePoint limit);

 private:
  void run();
  bool advance_all();

  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  std::vector<std::shared_ptr<DeviceMessage>> messages_;  // In the order of their calls.
  bool is_running_ = false;
  TaskThread thread_;  // Last: it uses all of the above.
};

}  // namespace tutti::client

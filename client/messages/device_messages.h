// Messages whose tensors are in the memory of a GPU. They pass through pinned memory of the segment
// (staging.h): a stream copies what is sent there, and what was received from there. A thread of
// the group sees to the rest, so no caller waits for a stream. The thread itself waits for nothing,
// so no message holds up another one, but for earlier ones to the same rank.
//
//   send     the stream copies the tensor, and goes on; then the thread sends the copy
//   receive  the call waits for the message at once, as on the host; the stream waits until it is
//            there, and copies it. Without a stream the thread copies it, once the default stream
//            has reached the call.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "client/gpu/device_memory.h"
#include "client/messages/outbox.h"
#include "client/operations/awaitable.h"
#include "client/rank/task_thread.h"

namespace tutti::client {

class DeviceMessage final : public Awaitable {
 public:
  struct Parts {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<DeviceMemory> device_memory;
    std::shared_ptr<StagedSides> staged;
    TimePoint deadline;
    bool on_stream = false;
    std::shared_ptr<StreamFailure> failure = nullptr;  // Null: somebody waits for the message.
    // For a message that is sent.
    int32_t destination = -1;
    std::unique_ptr<Sending> sending = nullptr;
    // For one that is received: the receive under way, and words whose `ready` the stream stores.
    std::shared_ptr<Awaitable> moving = nullptr;
    Words words = {};
  };
  explicit DeviceMessage(Parts parts) : parts_(std::move(parts)) {}

  Status wait(int64_t timeout_ms) override;
  bool poll() override;
  // A stream may wait for it, so it goes on; without one, the tensor is not written any more.
  void abandon() override;
  int32_t source() const override;

  // ---- For the thread ----

  // Does what can be done now. `may_start`: no earlier message to the same rank still has to be
  // sent. False: nothing.
  bool advance(bool may_start);
  // The rank that it still has to be sent to; -1: none. Any thread.
  int32_t destination() const { return has_started_ ? -1 : parts_.destination; }
  void end(Status outcome);

 private:
  bool is_received() const { return parts_.destination < 0; }
  bool is_over(const Status& usable) const;
  bool expire(bool may_start);
  bool send(bool may_start);
  bool finish();
  bool copy_on_stream();
  bool copy_beside_stream();

  Parts parts_;              // The thread's alone, but for what never changes.
  bool is_resumed_ = false;  // The thread's: the stream was notified that the message is there.
  std::atomic<bool> has_started_ = false;  // To be sent, or it never will.
  std::atomic<bool> has_ended_ = false;
  std::mutex writing_;  // Held while the thread writes the tensor without a stream.
  bool is_abandoned_ = false;
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
  // Waits until no earlier message still has to be sent to this rank. False: until `limit`.
  bool await_starts(int32_t destination, TimePoint limit);

 private:
  void run();
  bool advance_all() noexcept;
  void pause(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  std::vector<std::shared_ptr<DeviceMessage>> messages_;  // In the order of their calls.
  std::chrono::microseconds pause_{0};                    // Before the next look at them.
  bool is_running_ = false;
  TaskThread thread_;  // Last: it uses all of the above.
};

}  // namespace tutti::client

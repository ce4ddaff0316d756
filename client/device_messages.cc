#include "client/device_messages.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "client/connection.h"

namespace tutti::client {
namespace {

// Between two looks at messages that are under way.
constexpr std::chrono::microseconds kPause{100};

}  // namespace

// ---- One message ----

Status DeviceMessage::wait(int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  const auto has_outcome = [this] { return outcome_.has_value(); };
  if (timeout_ms < 0)
    changed_.wait(lock, has_outcome);
  else if (!changed_.wait_for(lock, Millis(timeout_ms), has_outcome))
    return deadline_exceeded("the message has not ended after " + std::to_string(timeout_ms) +
                             " ms; wait for it again");
  return *outcome_;
}

bool DeviceMessage::poll() { return has_ended_; }

int32_t DeviceMessage::source() const {
  const std::lock_guard lock(mutex_);
  return source_;
}

bool DeviceMessage::advance(bool may_start) {
  if (has_ended_) return false;
  if (parts_.moving == nullptr) return may_start && start();
  return parts_.moving->poll() && finish();
}

// Sends the message once the stream has copied it.
bool DeviceMessage::start() {
  if (parts_.staged->is_idle()) {
    const Status started = parts_.start(&parts_.moving);
    has_started_ = true;
    if (!started.ok()) end(started);
    return true;
  }
  const Status usable = parts_.connection->usable();
  if (usable.ok() && Clock::now() < parts_.deadline) return false;
  end(!usable.ok() ? usable
                   : deadline_exceeded("the stream has not reached the message in its time; give "
                                       "it more"));
  return true;
}

// Without a stream, the default one may still be at work on the tensor.
bool DeviceMessage::finish() {
  Status outcome = parts_.moving->wait(-1);
  if (is_received() && !parts_.on_stream && outcome.ok()) {
    const bool has_reached = parts_.connection->device_memory().is_ready(parts_.words);
    if (!has_reached && Clock::now() < parts_.deadline) return false;
    outcome = has_reached ? parts_.staged->copy_out_now()
                          : deadline_exceeded(
                                "the default stream has not reached the message in "
                                "its time; give it more");
  }
  end(outcome);
  return true;
}

void DeviceMessage::end(const Status& outcome) {
  has_started_ = true;
  if (is_received()) parts_.connection->device_memory().release(parts_.words);
  if (parts_.failure != nullptr) parts_.failure->keep(outcome);
  parts_.staged.reset();
  const std::lock_guard lock(mutex_);
  if (is_received() && parts_.moving != nullptr) source_ = parts_.moving->source();
  outcome_ = outcome;
  has_ended_ = true;
  changed_.notify_all();
}

// ---- All of a group ----

void DeviceMessages::add(const std::shared_ptr<DeviceMessage>& message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(message);
  changed_.notify_all();
  if (std::exchange(is_running_, true)) return;
  const Status started = thread_.add([self = shared_from_this()] { self->run(); });
  if (started.ok()) return;
  is_running_ = false;
  messages_.pop_back();
  message->end(started);
}

void DeviceMessages::await_starts(int32_t destination, TimePoint limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, limit, [&] {
    return std::ranges::none_of(messages_, [&](const std::shared_ptr<DeviceMessage>& message) {
      return message->destination() == destination;
    });
  });
}

// Until no message is under way.
void DeviceMessages::run() {
  for (;;) {
    const bool any = advance_all();
    std::unique_lock lock(mutex_);
    std::erase_if(messages_, [](const auto& message) { return message->poll(); });
    if (any) changed_.notify_all();
    if (messages_.empty()) {
      is_running_ = false;
      return;
    }
    if (!any) changed_.wait_for(lock, kPause);
  }
}

// Without the lock: to send may block.
bool DeviceMessages::advance_all() {
  std::vector<std::shared_ptr<DeviceMessage>> messages;
  {
    const std::lock_guard lock(mutex_);
    messages = messages_;
  }
  bool any = false;
  std::set<int32_t> waiting;  // Ranks that an earlier message still has to be sent to.
  for (const std::shared_ptr<DeviceMessage>& message : messages) {
    const int32_t destination = message->destination();
    any |= message->advance(!waiting.contains(destination));
    if (message->destination() >= 0) waiting.insert(destination);
  }
  return any;
}

}  // namespace tutti::client

#include "client/messages/device_messages.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "client/rank/connection.h"
#include "daemon/base/no_throw.h"

namespace tutti::client {
namespace {

// Between two looks at messages that are under way. While nothing happens the pauses grow, with the
// time that has passed: a look is late by 3% of the wait, or 10 ms, and long waits cost nothing.
constexpr std::chrono::microseconds kLeastPause{100};
constexpr std::chrono::microseconds kMostPause{10'000};
constexpr int kPauseGrowth = 32;  // A pause is longer than the last one by one part of so many.

}  // namespace

// ---- One message ----

Status DeviceMessage::wait(int64_t timeout_ms) {
  if (!parts_.connection->is_own_process()) return parts_.connection->usable();
  std::unique_lock lock(mutex_);
  const auto has_outcome = [this] { return outcome_.has_value(); };
  if (timeout_ms < 0)
    changed_.wait(lock, has_outcome);
  else if (!changed_.wait_for(lock, Millis(timeout_ms), has_outcome))
    return deadline_exceeded("the message has not ended after " + std::to_string(timeout_ms) +
                             " ms; wait for it again");
  return *outcome_;
}

bool DeviceMessage::poll() { return has_ended_ || !parts_.connection->is_own_process(); }

void DeviceMessage::abandon() {
  if (!is_received() || parts_.on_stream || !parts_.connection->is_own_process()) return;
  const std::lock_guard lock(writing_);
  is_abandoned_ = true;
}

int32_t DeviceMessage::source() const {
  if (!parts_.connection->is_own_process()) return -1;
  const std::lock_guard lock(mutex_);
  return source_;
}

bool DeviceMessage::advance(bool may_start) {
  if (has_ended_) return false;
  if (parts_.moving != nullptr) return parts_.moving->poll() && finish();
  return expire(may_start) || send(may_start);
}

// Whether the message may not be sent any more. One of which a part is sent is given the time to
// fail on both sides.
bool DeviceMessage::is_over(const Status& usable) const {
  const Millis grace = parts_.sending->has_begun() ? kAnswerGrace : Millis(0);
  return !usable.ok() || Clock::now() >= parts_.deadline + grace;
}

bool DeviceMessage::expire(bool may_start) {
  const Status usable = parts_.connection->usable();
  if (!is_over(usable)) return false;
  const char* const why =
      !may_start ? "messages that were sent to that rank before took all of its time"
      : !parts_.staged->is_idle()
          ? "the stream has not reached the message before the deadline; pass a longer timeout"
          : "messages of other threads to that rank, or those that it has yet to take, took all of "
            "its time";
  end(with_name_of(parts_.sending->args(), usable.ok() ? deadline_exceeded(why) : usable));
  return true;
}

// Sends the message once the stream has copied it. False: nothing of it can be sent now.
bool DeviceMessage::send(bool may_start) {
  if (!may_start || !parts_.staged->is_idle()) return false;
  bool any = false;
  const Status sent = no_throw([&] { return parts_.sending->send_some(any); });
  if (!sent.ok()) return end(with_name_of(parts_.sending->args(), sent)), true;
  if (!parts_.sending->is_all_sent()) return any;
  parts_.moving = parts_.sending->take_parts();
  parts_.sending.reset();
  has_started_ = true;
  return true;
}

// The receiver has the message, or this rank has it.
bool DeviceMessage::finish() {
  const Status outcome = parts_.moving->wait(-1);
  if (outcome.ok() && is_received())
    return parts_.on_stream ? copy_on_stream() : copy_beside_stream();
  end(outcome);
  return true;
}

// The waiter is notified once the tensor is written; nobody waits for the others.
bool DeviceMessage::copy_on_stream() {
  StreamWords& device = parts_.device_memory->words();
  const bool was_resumed = std::exchange(is_resumed_, true);
  if (!was_resumed) device.resume(parts_.words);
  const bool is_there = parts_.failure != nullptr || device.has_resumed(parts_.words);
  if (!is_there && Clock::now() < parts_.deadline) return !was_resumed;
  end(is_there ? Status()
               : deadline_exceeded("the stream has not copied the message before the deadline; "
                                   "pass a longer timeout"));
  return true;
}

// Without a stream, the default one may still be at work on the tensor.
bool DeviceMessage::copy_beside_stream() {
  const bool has_reached = parts_.device_memory->words().is_ready(parts_.words);
  if (!has_reached && Clock::now() < parts_.deadline) return false;
  const std::lock_guard lock(writing_);
  end(is_abandoned_ ? aborted("its work was freed before the message came")
      : has_reached ? parts_.staged->copy_out_now()
                    : deadline_exceeded("the default stream has not reached the message before "
                                        "the deadline; pass a longer timeout"));
  return true;
}

// What may fail, because memory runs out, comes first: then this is called again.
void DeviceMessage::end(Status outcome) {
  if (parts_.failure != nullptr) parts_.failure->keep(outcome);
  if (is_received()) parts_.device_memory->words().release(parts_.words);
  parts_.sending.reset();
  parts_.staged.reset();
  has_started_ = true;
  const std::lock_guard lock(mutex_);
  if (is_received() && parts_.moving != nullptr) source_ = parts_.moving->source();
  outcome_ = std::move(outcome);
  has_ended_ = true;
  parts_.failure.reset();
  changed_.notify_all();
}

// ---- All of a group ----

void DeviceMessages::add(const std::shared_ptr<DeviceMessage>& message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(message);
  pause_ = kLeastPause;
  changed_.notify_all();
  if (std::exchange(is_running_, true)) return;
  const Status started = thread_.add([self = shared_from_this()] { self->run(); });
  if (started.ok()) return;
  is_running_ = false;
  messages_.pop_back();
  message->end(started);
}

bool DeviceMessages::await_starts(int32_t destination, TimePoint limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, limit, [&] {
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
    if (messages_.empty()) is_running_ = false;
    if (any) {
      pause_ = kLeastPause;
      changed_.notify_all();
    }
    if (messages_.empty()) return;
    if (!any) pause(lock);
  }
}

void DeviceMessages::pause(std::unique_lock<std::mutex>& lock) {
  const std::chrono::microseconds now = pause_;
  pause_ = std::min(kMostPause, now + now / kPauseGrowth);
  changed_.wait_for(lock, now);
}

// Without the lock. False: nothing could be done, or memory ran out, and may be there later.
bool DeviceMessages::advance_all() noexcept {
  try {
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
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace tutti::client

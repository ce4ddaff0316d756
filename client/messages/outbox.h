// What a rank sends: the channels to other ranks, and the broadcasts of each message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "client/messages/channel.h"
#include "client/operations/awaitable.h"

namespace tutti::client {

// The arguments of tutti_send().
struct SendArgs {
  const void* in = nullptr;
  size_t count = 0;
  tutti_dtype dtype = TUTTI_F32;
  int32_t destination = 0;
  uint64_t tag = 0;
  // Not null: the call is refused, and the receiver learns why; there is no memory. `any_tag`:
  // the tag is not known.
  const Status* refusal = nullptr;
  bool any_tag = false;
};

// By when a message must have arrived.
struct MessageTime {
  uint32_t timeout_ms = 0;
  TimePoint deadline;
};

// "send to rank 3 (tag 7): " before the message of an error.
Status with_name_of(const SendArgs& args, const Status& status);

// A message that was not sent, of which its receiver is notified before the next one.
struct Unsent {
  uint64_t tag = 0;
  bool any_tag = false;
  Status why;
};

// What this rank sends to another.
class Outgoing {
 public:
  std::unique_ptr<Group> channel;  // Null until the first message.
  std::timed_mutex order;          // Held from a message's first broadcast to its last.

  // The message failed before its first broadcast. Its receiver's call must not take the next one:
  // the connection is lost rather than more than kOwedMax.
  void keep_place(Connection& connection, const SendArgs& args, const Status& why);
  std::optional<Unsent> first_unsent();
  void drop_first_unsent();

 private:
  std::mutex mutex_;  // Guards unsent_.
  std::deque<Unsent> unsent_;
};

// A message to be sent: the header, then parts of what does not fit that. For one thread.
class Sending {
 public:
  // `waits`: for the receiver.
  Sending(std::shared_ptr<Outgoing> to, const SendArgs& args, const MessageTime& time, bool waits);
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;
  // What is on its way goes on, but nobody waits for it.
  ~Sending();

  // Sends all of it; blocks until messages of other threads to that rank are sent, and where the
  // channel has no room.
  Status send_all();
  // Sends what it can without blocking; `any`: something. A failure ends the message.
  Status send_some(bool& any);
  bool has_begun() const { return has_header_; }
  bool is_all_sent() const { return has_header_ && done_ == bytes_; }
  // What ends when the receiver has the message, of which all is sent; without `waits`.
  std::shared_ptr<Awaitable> take_parts();
  const SendArgs& args() const { return args_; }

 private:
  Status send_next();
  Status send_header();
  Status send_unsent(const Unsent& unsent);
  Status broadcast(const void* data, uint64_t bytes, tutti_dtype dtype);

  const std::shared_ptr<Outgoing> to_;
  const SendArgs args_;
  const MessageTime time_;
  const bool waits_;
  const bool is_shared_;
  const uint64_t bytes_;
  uint64_t done_ = 0;  // Bytes that are on their way.
  bool has_header_ = false;
  std::vector<std::shared_ptr<StartedOp>> parts_;
  std::unique_lock<std::timed_mutex> order_;
};

// Safe from any thread. Keep in a shared_ptr.
class Outbox {
 public:
  explicit Outbox(Members members) : members_(std::move(members)) {}

  // Sends memory of the host; the arguments are valid. If `work` is null, blocks until the receiver
  // has the message, or it is lost. Otherwise returns once it is on its way, and sets `*work`.
  Status send(const SendArgs& args, const MessageTime& time, std::shared_ptr<Awaitable>* work);
  // A message that is to be sent later. Waits for the worker if it is the first one to that rank.
  Status prepare(const SendArgs& args, const MessageTime& time, std::unique_ptr<Sending>& sending);
  // The message is not sent; see Outgoing::keep_place().
  void keep_place(const SendArgs& args, const Status& why);

 private:
  std::shared_ptr<Outgoing> find(uint32_t destination);
  Result<std::shared_ptr<Outgoing>> outgoing(const SendArgs& args, TimePoint deadline);
  Status open(Outgoing& to, uint32_t destination, TimePoint deadline);

  const Members members_;
  std::timed_mutex making_;  // Held while a channel is made.
  std::mutex mutex_;         // Guards outgoing_.
  std::map<uint32_t, std::shared_ptr<Outgoing>> outgoing_;
};

}  // namespace tutti::client

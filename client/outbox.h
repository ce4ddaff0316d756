// What a rank sends: the channels to other ranks, and the broadcasts of each message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "client/awaitable.h"
#include "client/channel.h"

namespace tutti::client {

// The arguments of tutti_send().
struct SendArgs {
  const void* in = nullptr;
  size_t count = 0;
  tutti_dtype dtype = TUTTI_F32;
  int32_t destination = 0;
  uint64_t tag = 0;
};

// By when a message must have arrived.
struct MessageTime {
  uint32_t timeout_ms = 0;
  TimePoint deadline;
};

// "send to rank 3 (tag 7): " before the message of an error.
Status with_name_of(const SendArgs& args, const Status& status);

// Safe from any thread. Keep in a shared_ptr.
class Outbox {
 public:
  explicit Outbox(Members members) : members_(std::move(members)) {}

  // Sends memory of the host; the arguments are valid. If `work` is null, blocks until the receiver
  // has the message, or it is lost. Otherwise returns once it is on its way, and sets `*work`.
  Status send(const SendArgs& args, const MessageTime& time, std::shared_ptr<Awaitable>* work);

 private:
  // A channel on which this rank sends.
  struct Outgoing {
    std::unique_ptr<tutti_group> channel;
    std::timed_mutex order;  // Held from a message's first broadcast to its last.
  };

  Result<Outgoing*> outgoing(uint32_t destination);
  Status send_parts(Outgoing& to, const SendArgs& args, TimePoint deadline,
                    std::shared_ptr<Awaitable>* work);

  const Members members_;
  std::mutex mutex_;  // Guards outgoing_.
  std::map<uint32_t, std::unique_ptr<Outgoing>> outgoing_;
};

}  // namespace tutti::client

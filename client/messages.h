// Messages between two ranks of a group: tutti_send() and tutti_recv().
//
// Two ranks of which one sends to the other have a *channel*: a group of these two, the sender
// first, in which a message is a sequence of broadcasts. The first is a MessageHeader, with the
// whole message if that is small; others bring the rest in parts. So messages have the order, the
// deadlines and the named failures of operations, in shared memory and between hosts.
//
// The receiver matches tags and sources (inbox.h). What a rank reads before the message that it
// waits for, it keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "client/awaitable.h"
#include "client/group.h"
#include "client/inbox.h"

namespace tutti::client {

// The arguments of tutti_send().
struct SendArgs {
  const void* in = nullptr;
  size_t count = 0;
  tutti_dtype dtype = TUTTI_F32;
  int32_t destination = 0;
  uint64_t tag = 0;
};

// The arguments of tutti_recv().
struct ReceiveArgs {
  void* out = nullptr;
  size_t count = 0;
  tutti_dtype dtype = TUTTI_F32;
  int32_t source = kAnyRank;
  uint64_t tag = 0;
};

// Safe from any thread.
class Messenger {
 public:
  // `group` has no messenger yet; what is needed of it is copied.
  explicit Messenger(const tutti_group& group);
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;
  ~Messenger();

  // If `work` is null, blocks until the receiver has the message, or it is lost. Otherwise returns
  // once it is on its way, and sets `*work`.
  Status send(const SendArgs& args, const tutti_options* options, std::shared_ptr<Awaitable>* work);
  // If `work` is null, blocks until the message is in the output. Otherwise returns at once.
  Status receive(const ReceiveArgs& args, const tutti_options* options,
                 std::shared_ptr<Awaitable>* work);

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
  const std::shared_ptr<Inbox> inbox_;
  std::mutex mutex_;  // Guards outgoing_.
  std::map<uint32_t, std::unique_ptr<Outgoing>> outgoing_;
};

}  // namespace tutti::client

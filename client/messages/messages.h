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
#include <memory>

#include "client/messages/device_messages.h"
#include "client/messages/inbox.h"
#include "client/messages/outbox.h"
#include "client/operations/awaitable.h"
#include "client/operations/group.h"

namespace tutti::client {

// The arguments of tutti_recv().
struct ReceiveArgs {
  void* out = nullptr;
  size_t count = 0;
  tutti_dtype dtype = TUTTI_F32;
  int32_t source = kAnyRank;
  uint64_t tag = 0;
  bool any_tag = false;  // Of a refused call: the tag is not known.
};

// Safe from any thread.
class Messenger {
 public:
  // `group` has no messenger yet; what is needed of it is copied.
  explicit Messenger(const Group& group);
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;
  ~Messenger();

  // If `work` is null, blocks until the receiver has the message, or it is lost. Otherwise returns
  // once it is on its way, and sets `*work`.
  Status send(const SendArgs& args, const tutti_options* options, std::shared_ptr<Awaitable>* work);
  // If `work` is null, blocks until the message is in the output. Otherwise returns at once.
  Status receive(const ReceiveArgs& args, const tutti_options* options,
                 std::shared_ptr<Awaitable>* work);

  // In place of a call that is refused: it keeps its place in the order of messages. Returns `why`,
  // or why nobody is notified.
  Status refuse_send(const SendArgs& args, const Status& why);
  Status refuse_receive(const ReceiveArgs& args, const Status& why);

 private:
  Status tell_refusal(SendArgs args, const MessageTime& time, const Status& why);
  Status skip_message(const ReceiveArgs& args, const MessageTime& time, const Status& why);
  Status send_any(const SendArgs& args, const tutti_options* options,
                  std::shared_ptr<Awaitable>* work);
  Status receive_any(const ReceiveArgs& args, const tutti_options* options,
                     std::shared_ptr<Awaitable>* work);
  Status check_call(const tutti_options* options, tutti_options& given, MessageTime& time);
  Status check_place(const void* data, size_t count, const tutti_options& given);
  bool is_device(const void* data, size_t count);
  Status send_from_host(const SendArgs& args, const MessageTime& time,
                        std::shared_ptr<Awaitable>* work);
  Status receive_on_host(const ReceiveArgs& args, const MessageTime& time,
                         std::shared_ptr<Awaitable>* work);
  Status stage(const tutti_options& given, const StagedSides::Side& in,
               const StagedSides::Side& out, DeviceMessage::Parts& parts);
  Status send_from_device(const SendArgs& args, const tutti_options& given, const MessageTime& time,
                          std::shared_ptr<Awaitable>* work);
  Status receive_on_device(const ReceiveArgs& args, const tutti_options& given,
                           const MessageTime& time, std::shared_ptr<Awaitable>* work);
  Status begin(DeviceMessage::Parts parts, std::shared_ptr<Awaitable>* work);

  const Members members_;
  const std::shared_ptr<StreamFailure> failure_;
  const std::shared_ptr<Inbox> inbox_;
  const std::shared_ptr<Outbox> outbox_;
  const std::shared_ptr<DeviceMessages> device_messages_;
};

}  // namespace tutti::client

#include "client/messages/messages.h"

#include <string>
#include <utility>

#include "client/gpu/device_memory.h"
#include "client/rank/options.h"
#include "proto/types.h"

namespace tutti::client {
namespace {

// A message to be received. Keeps alive what it needs.
class PendingReceive final : public Awaitable {
 public:
  PendingReceive(std::shared_ptr<Inbox> inbox, std::shared_ptr<Receive> receive)
      : inbox_(std::move(inbox)), receive_(std::move(receive)) {}
  Status wait(int64_t timeout_ms) override { return inbox_->wait(*receive_, timeout_ms); }
  bool poll() override { return inbox_->poll(*receive_); }
  void abandon() override { inbox_->abandon(receive_); }
  int32_t source() const override { return receive_->outcome ? receive_->from : -1; }

 private:
  const std::shared_ptr<Inbox> inbox_;
  const std::shared_ptr<Receive> receive_;
};

// It must be another rank of the group.
Status check_peer(const Members& members, const char* peer_name, int32_t peer) {
  if (peer < 0 || static_cast<size_t>(peer) >= members.ranks.size())
    return invalid_argument(std::string(peer_name) + " " + std::to_string(peer) +
                            " is no rank of a group of " + std::to_string(members.ranks.size()));
  if (static_cast<uint32_t>(peer) == members.rank)
    return invalid_argument(std::string(peer_name) + " " + std::to_string(peer) +
                            " is this rank itself; copy instead");
  return {};
}

Status check_source(const Members& members, int32_t source) {
  const bool is_any = source == kAnyRank && members.ranks.size() > 1;
  return check_peer(members, "source", is_any ? (members.rank == 0 ? 1 : 0) : source);
}

// The buffer must have a known dtype.
Status check_buffer(const Members& members, const void* data, size_t count, tutti_dtype dtype) {
  if (static_cast<uint32_t>(dtype) >= kDtypes)
    return invalid_argument("unknown dtype " + std::to_string(dtype));
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, tutti_dtype_size(dtype), &bytes) || bytes > PTRDIFF_MAX)
    return invalid_argument("count " + std::to_string(count) + " is more than any memory holds");
  if (count != 0 && data == nullptr)
    return invalid_argument("the buffer is NULL though count is " + std::to_string(count));
  return members.connection->own_memory().check_block("the buffer", data, bytes);
}

// What a message is read from, or written to.
Status take_buffer(const Members& members, const char* verb, const void* data, uint64_t bytes,
                   bool is_written, MemoryUse& use) {
  if (bytes == 0) return {};
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const MemoryRange range{begin, begin + bytes, 0, is_written};
  use.last_until_end();
  return members.connection->memory_in_use().take({&range, 1}, verb, true, use);
}

cuda::Stream stream_of(const tutti_options& given) {
  return given.on_stream != 0 ? static_cast<cuda::Stream>(given.stream) : nullptr;
}

}  // namespace

Messenger::Messenger(const Group& group)
    : members_(group),
      failure_(group.stream_failure),
      inbox_(std::make_shared<Inbox>(members_)),
      outbox_(std::make_shared<Outbox>(members_)),
      device_messages_(std::make_shared<DeviceMessages>()) {}

Messenger::~Messenger() { inbox_->close(); }

// A message on a stream that nobody waits for has failed: this call tells.
Status Messenger::check_call(const tutti_options* options, tutti_options& given,
                             MessageTime& time) {
  constexpr size_t kLeast = offsetof(tutti_options, timeout_ms) + sizeof(given.timeout_ms);
  given = tutti_defaults();
  const Status read = read_sized(options, kLeast, "tutti_defaults()", given);
  if (!read.ok()) given = tutti_defaults();
  time.timeout_ms = given.timeout_ms > 0 ? static_cast<uint32_t>(given.timeout_ms)
                                         : members_.connection->target().timeout_ms;
  time.deadline = Clock::now() + Millis(time.timeout_ms);
  return read.ok() ? failure_->take() : read;
}

bool Messenger::is_device(const void* data, size_t count) {
  return count != 0 && !members_.connection->own_memory().is_shared(data) &&
         members_.device_memory->is_device(data);
}

// A stream is for GPU memory.
Status Messenger::check_place(const void* data, size_t count, const tutti_options& given) {
  if (is_device(data, count)) {
    if (!members_.device_memory->is_captured(stream_of(given))) return {};
    return failed_precondition(
        "the stream is being captured into a CUDA graph, which cannot hold messages; call outside "
        "of the capture");
  }
  if (given.on_stream == 0 || count == 0) return {};
  return invalid_argument("the buffer is not in the memory of a GPU, as the call's stream says");
}

// ---- Sending ----

Status Messenger::send(const SendArgs& args, const tutti_options* options,
                       std::shared_ptr<Awaitable>* work) {
  return failure_->first_failure(*members_.connection, send_any(args, options, work));
}

Status Messenger::send_any(const SendArgs& args, const tutti_options* options,
                           std::shared_ptr<Awaitable>* work) {
  tutti_options given;
  MessageTime time;
  if (Status s = members_.connection->usable(); !s.ok()) return s;
  Status fault = check_call(options, given, time);
  if (fault.ok()) fault = check_peer(members_, "destination", args.destination);
  if (fault.ok()) fault = check_buffer(members_, args.in, args.count, args.dtype);
  if (fault.ok()) fault = check_place(args.in, args.count, given);
  const bool is_on_gpu = fault.ok() && is_device(args.in, args.count);
  MemoryUse memory;  // Until the call returns: the message is copied then.
  if (fault.ok() && !is_on_gpu)
    fault = take_buffer(members_, "send", args.in, args.count * tutti_dtype_size(args.dtype), false,
                        memory);
  if (!fault.ok()) return tell_refusal(args, time, fault);
  if (is_on_gpu) return send_from_device(args, given, time, work);
  return send_from_host(args, time, work);
}

Status Messenger::refuse_send(const SendArgs& args, const Status& why) {
  tutti_options given;
  MessageTime time;
  if (Status s = members_.connection->usable(); !s.ok()) return s;
  if (Status s = check_peer(members_, "destination", args.destination); !s.ok()) return s;
  static_cast<void>(check_call(nullptr, given, time));
  return tell_refusal(args, time, why);
}

// The receiver's call fails with `why`. Does not wait for it.
Status Messenger::tell_refusal(SendArgs args, const MessageTime& time, const Status& why) {
  if (!check_peer(members_, "destination", args.destination).ok()) return why;
  args.in = nullptr;
  args.count = 0;
  args.refusal = &why;
  std::shared_ptr<Awaitable> sent;
  if (send_from_host(args, time, &sent).ok()) sent->abandon();
  return why;
}

// Not before messages from GPUs that this rank was to send earlier.
Status Messenger::send_from_host(const SendArgs& args, const MessageTime& time,
                                 std::shared_ptr<Awaitable>* work) {
  if (device_messages_->await_starts(args.destination, time.deadline))
    return outbox_->send(args, time, work);
  const Status late = deadline_exceeded(
      "earlier messages from GPU memory to that rank took all of the " +
      std::to_string(time.timeout_ms) + " ms: their streams have yet to reach them");
  outbox_->keep_place(args, late);
  return with_name_of(args, late);
}

Status Messenger::stage(const tutti_options& given, const StagedSides::Side& in,
                        const StagedSides::Side& out, DeviceMessage::Parts& parts) {
  DeviceRequest places{};
  const void* memory = in.bytes != 0 ? in.memory : out.memory;
  const Status staged = members_.device_memory->stage(stream_of(given), memory, in, out,
                                                      parts.deadline, places, parts.staged);
  if (staged.ok()) return {};
  return Status(staged.code(), "there is no pinned memory for the message: " + staged.message());
}

Status Messenger::send_from_device(const SendArgs& args, const tutti_options& given,
                                   const MessageTime& time, std::shared_ptr<Awaitable>* work) {
  const uint64_t bytes = args.count * tutti_dtype_size(args.dtype);
  DeviceMessage::Parts parts{.connection = members_.connection,
                             .device_memory = members_.device_memory,
                             .staged = nullptr,
                             .deadline = time.deadline,
                             .on_stream = given.on_stream != 0,
                             .destination = args.destination};
  if (Status s = stage(given, {args.in, bytes}, {}, parts); !s.ok())
    return tell_refusal(args, time, s);
  SendArgs copy = args;
  copy.in = parts.staged->input();
  if (Status s = outbox_->prepare(copy, time, parts.sending); !s.ok()) return s;
  if (Status s = parts.staged->copy_in(); !s.ok()) return tell_refusal(args, time, s);
  return begin(std::move(parts), work);
}

// ---- Receiving ----

Status Messenger::receive(const ReceiveArgs& args, const tutti_options* options,
                          std::shared_ptr<Awaitable>* work) {
  return failure_->first_failure(*members_.connection, receive_any(args, options, work));
}

Status Messenger::receive_any(const ReceiveArgs& args, const tutti_options* options,
                              std::shared_ptr<Awaitable>* work) {
  tutti_options given;
  MessageTime time;
  if (Status s = members_.connection->usable(); !s.ok()) return s;
  Status fault = check_call(options, given, time);
  if (fault.ok()) fault = check_source(members_, args.source);
  if (fault.ok()) fault = check_buffer(members_, args.out, args.count, args.dtype);
  if (fault.ok()) fault = check_place(args.out, args.count, given);
  if (!fault.ok()) return skip_message(args, time, fault);
  if (is_device(args.out, args.count)) return receive_on_device(args, given, time, work);
  return receive_on_host(args, time, work);
}

Status Messenger::refuse_receive(const ReceiveArgs& args, const Status& why) {
  tutti_options given;
  MessageTime time;
  if (Status s = members_.connection->usable(); !s.ok()) return s;
  if (Status s = check_source(members_, args.source); !s.ok()) return s;
  static_cast<void>(check_call(nullptr, given, time));
  return skip_message(args, time, why);
}

// The message that the call is for is received, but nobody gets it.
Status Messenger::skip_message(const ReceiveArgs& args, const MessageTime& time,
                               const Status& why) {
  if (!check_source(members_, args.source).ok() || is_lost_alone(why)) return why;
  auto receive = std::make_shared<Receive>();
  receive->source = args.source;
  receive->tag = args.tag;
  receive->any_tag = args.any_tag;
  receive->refusal = why;
  receive->timeout_ms = time.timeout_ms;
  receive->deadline = time.deadline;
  static_cast<void>(inbox_->add(receive, true));
  return why;
}

Status Messenger::receive_on_host(const ReceiveArgs& args, const MessageTime& time,
                                  std::shared_ptr<Awaitable>* work) {
  auto receive = std::make_shared<Receive>();
  receive->source = args.source;
  receive->tag = args.tag;
  receive->out = static_cast<std::byte*>(args.out);
  receive->count = args.count;
  receive->dtype = static_cast<uint32_t>(args.dtype);
  receive->timeout_ms = time.timeout_ms;
  receive->deadline = time.deadline;
  const uint64_t bytes = args.count * tutti_dtype_size(args.dtype);
  Status taken = take_buffer(members_, "recv", args.out, bytes, true, receive->memory);
  if (!taken.ok()) return skip_message(args, time, taken);
  auto pending = std::make_shared<PendingReceive>(inbox_, receive);
  if (Status s = inbox_->add(receive, work != nullptr); !s.ok()) return skip_message(args, time, s);
  if (work == nullptr) {
    try {
      return inbox_->wait(*receive, -1);
    } catch (...) {  // Memory ran out: nothing may be written to the caller's memory later.
      inbox_->abandon(receive);
      throw;
    }
  }
  *work = std::move(pending);
  return {};
}

// The receive is under way before the stream is asked to wait for it: what fails later ends it.
Status Messenger::receive_on_device(const ReceiveArgs& args, const tutti_options& given,
                                    const MessageTime& time, std::shared_ptr<Awaitable>* work) {
  DeviceMemory& device = *members_.device_memory;
  const cuda::Stream stream = stream_of(given);
  DeviceMessage::Parts parts{.connection = members_.connection,
                             .device_memory = members_.device_memory,
                             .staged = nullptr,
                             .deadline = time.deadline,
                             .on_stream = given.on_stream != 0};
  const uint64_t bytes = args.count * tutti_dtype_size(args.dtype);
  Status prepared = stage(given, {}, {args.out, bytes}, parts);
  if (prepared.ok()) prepared = device.take_words(stream, args.out, time.deadline, parts.words);
  if (!prepared.ok()) return skip_message(args, time, prepared);
  ReceiveArgs copy = args;
  copy.out = parts.staged->output();
  Status status = device.words().store_ready(stream, args.out, parts.words);
  if (!status.ok()) return device.words().give_back(parts.words), skip_message(args, time, status);
  status = receive_on_host(copy, time, &parts.moving);
  if (status.ok() && parts.on_stream)
    status = device.words().wait_for_done(stream, args.out, parts.words);
  if (status.ok() && parts.on_stream) status = parts.staged->copy_out();
  if (status.ok() && parts.on_stream)
    status = device.words().store_resumed(stream, args.out, parts.words);
  parts.words.resumes = status.ok() && parts.on_stream;
  if (status.ok()) return begin(std::move(parts), work);
  if (parts.moving != nullptr) parts.moving->abandon();
  device.words().release(parts.words);
  return status;
}

// Lets the group's thread see to the message, and waits for it where the call does.
Status Messenger::begin(DeviceMessage::Parts parts, std::shared_ptr<Awaitable>* work) {
  const bool waits = work == nullptr && !parts.on_stream;
  if (work == nullptr && parts.on_stream) parts.failure = failure_->begin();
  auto message = std::make_shared<DeviceMessage>(std::move(parts));
  device_messages_->add(message);
  if (work != nullptr) *work = message;
  return waits ? message->wait(-1) : Status();
}

}  // namespace tutti::client

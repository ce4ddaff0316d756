#include "client/messages.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "client/device_memory.h"
#include "client/options.h"
#include "client/submission.h"
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

Status with_prefix(const std::string& what, const Status& status) {
  if (status.ok()) return status;
  return Status(status.code(), what + ": " + status.message(), status.culprit());
}

// The other rank must be one of the group; the buffer must have a known dtype.
Status check_args(const Members& members, const char* peer_name, int32_t peer, const void* data,
                  size_t count, tutti_dtype dtype) {
  if (peer < 0 || static_cast<size_t>(peer) >= members.ranks.size())
    return invalid_argument(std::string(peer_name) + " " + std::to_string(peer) +
                            " is no rank of a group of " + std::to_string(members.ranks.size()));
  if (static_cast<uint32_t>(peer) == members.rank)
    return invalid_argument(std::string(peer_name) + " " + std::to_string(peer) +
                            " is this rank itself; copy instead");
  if (static_cast<uint32_t>(dtype) >= kDtypes)
    return invalid_argument("unknown dtype " + std::to_string(dtype));
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, tutti_dtype_size(dtype), &bytes) || bytes > PTRDIFF_MAX)
    return invalid_argument("count " + std::to_string(count) + " is more than any memory holds");
  if (count != 0 && data == nullptr)
    return invalid_argument("the buffer is NULL though count is " + std::to_string(count));
  if (members.connection->device_memory().is_device(data))
    return Status(Code::unimplemented,
                  "messages are not for GPU memory; copy the tensor to the host, or broadcast it");
  return members.connection->check_block("the buffer", data, bytes);
}

Status read_timeout(const Members& members, const tutti_options* options, uint32_t& timeout_ms) {
  tutti_options given = tutti_defaults();
  constexpr size_t kLeast = offsetof(tutti_options, timeout_ms) + sizeof(given.timeout_ms);
  if (Status s = read_sized(options, kLeast, "tutti_defaults()", given); !s.ok()) return s;
  timeout_ms = given.timeout_ms > 0 ? static_cast<uint32_t>(given.timeout_ms)
                                    : members.connection->target().timeout_ms;
  return {};
}

tutti_options options_with(int64_t timeout_ms) {
  tutti_options options = tutti_defaults();
  options.timeout_ms =
      static_cast<int32_t>(std::clamp<int64_t>(timeout_ms, kLeastPartMs, INT32_MAX));
  return options;
}

// The message's time is over: the part fails on both sides, which so stay in step.
Status refuse_part(tutti_group& channel, CollectiveArgs part, const tutti_options& options) {
  part.fault = "the message has taken longer than its timeout";
  const Status refused = run(channel, part, &options, nullptr);
  return Status(Code::deadline_exceeded, refused.message());
}

}  // namespace

Messenger::Messenger(const tutti_group& group)
    : members_{group.connection, group.number, group.rank, group.ranks},
      inbox_(std::make_shared<Inbox>(members_)) {}

Messenger::~Messenger() { inbox_->close(); }

// ---- Sending ----

Result<Messenger::Outgoing*> Messenger::outgoing(uint32_t destination) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Outgoing>& found = outgoing_[destination];
  if (found != nullptr) return found.get();
  Result<std::unique_ptr<tutti_group>> channel = make_channel(members_, members_.rank, destination);
  if (!channel.ok()) return channel.status();
  auto made = std::make_unique<Outgoing>();
  made->channel = *std::move(channel);
  found = std::move(made);
  return found.get();
}

Status Messenger::send(const SendArgs& args, const tutti_options* options,
                       std::shared_ptr<Awaitable>* work) {
  if (Status s = members_.connection->usable(); !s.ok()) return s;
  if (Status s =
          check_args(members_, "destination", args.destination, args.in, args.count, args.dtype);
      !s.ok())
    return s;
  const std::string what = "send to rank " + std::to_string(args.destination) + " (tag " +
                           std::to_string(args.tag) + ")";
  uint32_t timeout_ms = 0;
  if (Status s = read_timeout(members_, options, timeout_ms); !s.ok()) return s;
  const TimePoint deadline = Clock::now() + Millis(timeout_ms);
  const Result<Outgoing*> to = outgoing(static_cast<uint32_t>(args.destination));
  if (!to.ok()) return with_prefix(what, to.status());
  const std::unique_lock lock((*to)->order, deadline);
  if (!lock)
    return with_prefix(what, deadline_exceeded("messages of other threads to that rank took all of "
                                               "the " +
                                               std::to_string(timeout_ms) + " ms"));
  return with_prefix(what, send_parts(**to, args, deadline, work));
}

// Sends the header and the parts. All but the last broadcast are not waited for if they are copied.
Status Messenger::send_parts(Outgoing& to, const SendArgs& args, TimePoint deadline,
                             std::shared_ptr<Awaitable>* work) {
  tutti_group& channel = *to.channel;
  const auto broadcast = [&](const void* data, uint64_t bytes, tutti_dtype dtype, bool is_last) {
    const CollectiveArgs part{TUTTI_BROADCAST, data, const_cast<void*>(data), bytes, dtype};
    const auto left = std::chrono::ceil<Millis>(deadline - Clock::now()).count();
    const tutti_options options = options_with(left);
    if (dtype == kPartDtype && left <= 0) return refuse_part(channel, part, options);
    if (work == nullptr && (is_last || bytes == kMessagePartBytes))
      return run(channel, part, &options, nullptr);
    auto started = std::make_shared<StartedOp>(channel.connection, channel.queue);
    Status status = run(channel, part, &options, started->op());
    if (status.ok() && is_last)
      *work = std::move(started);
    else if (status.ok())
      started->abandon();
    return status;
  };
  MessageHeader header{};
  header.shape = {MessageHeader::kMagic, static_cast<uint32_t>(args.dtype), args.count, args.tag};
  const uint64_t bytes = header.shape.bytes();
  const bool has_all = bytes <= header.data.size();
  if (has_all && bytes != 0) std::memcpy(header.data.data(), args.in, bytes);
  Status status = broadcast(&header, sizeof(header), kHeaderDtype, has_all);
  const auto* data = static_cast<const std::byte*>(args.in);
  for (uint64_t done = 0; status.ok() && !has_all && done < bytes;) {
    const uint64_t part = part_bytes(bytes, done);
    status = broadcast(data + done, part, kPartDtype, done + part == bytes);
    done += part;
  }
  return status;
}

// ---- Receiving ----

Status Messenger::receive(const ReceiveArgs& args, const tutti_options* options,
                          std::shared_ptr<Awaitable>* work) {
  if (Status s = members_.connection->usable(); !s.ok()) return s;
  const int32_t peer = args.source == kAnyRank && members_.ranks.size() > 1
                           ? (members_.rank == 0 ? 1 : 0)
                           : args.source;
  if (Status s = check_args(members_, "source", peer, args.out, args.count, args.dtype); !s.ok())
    return s;
  auto receive = std::make_shared<Receive>();
  if (Status s = read_timeout(members_, options, receive->timeout_ms); !s.ok()) return s;
  receive->source = args.source;
  receive->tag = args.tag;
  receive->out = static_cast<std::byte*>(args.out);
  receive->count = args.count;
  receive->dtype = static_cast<uint32_t>(args.dtype);
  receive->deadline = Clock::now() + Millis(receive->timeout_ms);
  auto pending = std::make_shared<PendingReceive>(inbox_, receive);
  if (Status s = inbox_->add(receive, work != nullptr); !s.ok()) return s;
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

}  // namespace tutti::client

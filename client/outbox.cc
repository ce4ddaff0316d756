#include "client/outbox.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "client/submission.h"

namespace tutti::client {
namespace {

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

// The broadcasts of a message whose memory they use until all have ended.
class StartedParts final : public Awaitable {
 public:
  explicit StartedParts(std::vector<std::shared_ptr<StartedOp>> parts) : parts_(std::move(parts)) {}
  Status wait(int64_t timeout_ms) override {
    Status first;
    for (const std::shared_ptr<StartedOp>& part : parts_)
      if (Status s = part->wait(timeout_ms); !s.ok() && first.ok()) first = s;
    return first;
  }
  bool poll() override {
    return std::ranges::all_of(parts_, [](const auto& part) { return part->poll(); });
  }
  void abandon() override {
    for (const std::shared_ptr<StartedOp>& part : parts_) part->abandon();
  }

 private:
  const std::vector<std::shared_ptr<StartedOp>> parts_;
};

}  // namespace

Status with_name_of(const SendArgs& args, const Status& status) {
  if (status.ok()) return status;
  const std::string what = "send to rank " + std::to_string(args.destination) + " (tag " +
                           std::to_string(args.tag) + "): ";
  return Status(status.code(), what + status.message(), status.culprit());
}

Result<Outbox::Outgoing*> Outbox::outgoing(uint32_t destination) {
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

Status Outbox::send(const SendArgs& args, const MessageTime& time,
                    std::shared_ptr<Awaitable>* work) {
  const Result<Outgoing*> to = outgoing(static_cast<uint32_t>(args.destination));
  if (!to.ok()) return with_name_of(args, to.status());
  const std::unique_lock lock((*to)->order, time.deadline);
  if (!lock)
    return with_name_of(args,
                        deadline_exceeded("messages of other threads to that rank took all of "
                                          "the " +
                                          std::to_string(time.timeout_ms) + " ms"));
  return with_name_of(args, send_parts(**to, args, time.deadline, work));
}

// Sends the header and the parts. All but the last broadcast are not waited for if they are copied.
Status Outbox::send_parts(Outgoing& to, const SendArgs& args, TimePoint deadline,
                          std::shared_ptr<Awaitable>* work) {
  tutti_group& channel = *to.channel;
  const bool is_shared = members_.connection->is_shared(args.in);
  std::vector<std::shared_ptr<StartedOp>> parts;
  const auto broadcast = [&](const void* data, uint64_t bytes, tutti_dtype dtype, bool is_last) {
    const CollectiveArgs part{TUTTI_BROADCAST, data, const_cast<void*>(data), bytes, dtype};
    const auto left = std::chrono::ceil<Millis>(deadline - Clock::now()).count();
    const tutti_options options = options_with(left);
    if (dtype == kPartDtype && left <= 0) return refuse_part(channel, part, options);
    if (work == nullptr && (is_last || bytes == kMessagePartBytes))
      return run(channel, part, &options, nullptr);
    auto started = std::make_shared<StartedOp>(channel.connection, channel.queue);
    Status status = run(channel, part, &options, started->op());
    if (!status.ok()) return status;
    if (is_shared || is_last)
      parts.push_back(std::move(started));
    else
      started->abandon();
    if (is_last) *work = std::make_shared<StartedParts>(std::move(parts));
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
  if (!status.ok())
    for (const std::shared_ptr<StartedOp>& part : parts) part->abandon();
  return status;
}

}  // namespace tutti::client

#include "client/messages/outbox.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "client/operations/submission.h"

namespace tutti::client {
namespace {

tutti_options options_with(int64_t timeout_ms) {
  tutti_options options = tutti_defaults();
  options.timeout_ms =
      static_cast<int32_t>(std::clamp<int64_t>(timeout_ms, kLeastPartMs, INT32_MAX));
  return options;
}

// The message's time is over: the part fails on both sides, which so stay in step.
Status refuse_part(Group& channel, CollectiveArgs part, const tutti_options& options) {
  part.fault = "the message has taken longer than its timeout";
  const Status refused = run(channel, part, &options, nullptr);
  return Status(Code::deadline_exceeded, refused.message());
}

void write_refusal(const Unsent& unsent, MessageHeader& header) {
  const std::string& why = unsent.why.message();
  const size_t length = std::min(why.size(), header.data.size());
  header.shape = {unsent.any_tag ? MessageHeader::kRefusedAnyTag : MessageHeader::kRefused,
                  static_cast<uint32_t>(unsent.why.code()), length, unsent.tag};
  std::memcpy(header.data.data(), why.data(), length);
}

// The broadcasts of a message whose memory they use until all have ended.
class StartedParts final : public Awaitable {
 public:
  StartedParts(const SendArgs& args, std::vector<std::shared_ptr<StartedOp>> parts)
      : args_(args), parts_(std::move(parts)) {}
  Status wait(int64_t timeout_ms) override {
    Status first;
    for (const std::shared_ptr<StartedOp>& part : parts_)
      if (Status s = part->wait(timeout_ms); !s.ok() && first.ok()) first = s;
    return with_name_of(args_, first);
  }
  bool poll() override {
    return std::ranges::all_of(parts_, [](const auto& part) { return part->poll(); });
  }
  void abandon() override {
    for (const std::shared_ptr<StartedOp>& part : parts_) part->abandon();
  }

 private:
  const SendArgs args_;
  const std::vector<std::shared_ptr<StartedOp>> parts_;
};

}  // namespace

Status with_name_of(const SendArgs& args, const Status& status) {
  if (status.ok()) return status;
  const std::string what = "send to rank " + std::to_string(args.destination) + " (tag " +
                           std::to_string(args.tag) + "): ";
  return Status(status.code(), what + status.message(), status.culprit());
}

// ---- Messages that were not sent ----

void Outgoing::keep_place(Connection& connection, const SendArgs& args, const Status& why) {
  if (args.refusal == nullptr && is_lost_alone(why)) return;
  const std::lock_guard lock(mutex_);
  if (unsent_.size() == kOwedMax)
    return connection.mark_lost(resource_exhausted(std::to_string(kOwedMax) + " messages to rank " +
                                                   std::to_string(args.destination) +
                                                   " were refused, and none was sent; join again"));
  unsent_.push_back({args.tag, args.any_tag, args.refusal != nullptr ? *args.refusal : why});
}

std::optional<Unsent> Outgoing::first_unsent() {
  const std::lock_guard lock(mutex_);
  if (unsent_.empty()) return std::nullopt;
  return unsent_.front();
}

void Outgoing::drop_first_unsent() {
  const std::lock_guard lock(mutex_);
  unsent_.pop_front();
}

// ---- One message ----

Sending::Sending(std::shared_ptr<Outgoing> to, const SendArgs& args, const MessageTime& time,
                 bool waits)
    : to_(std::move(to)),
      args_(args),
      time_(time),
      waits_(waits),
      is_shared_(to_->channel->connection->own_memory().is_shared(args.in)),
      bytes_(args.count * tutti_dtype_size(args.dtype)),
      order_(to_->order, std::defer_lock) {}

Sending::~Sending() {
  for (const std::shared_ptr<StartedOp>& part : parts_) part->abandon();
}

Status Sending::send_all() {
  Status status;
  if (!order_.try_lock_until(time_.deadline)) {
    status = deadline_exceeded("messages of other threads to that rank took all of the " +
                               std::to_string(time_.timeout_ms) + " ms");
    to_->keep_place(*to_->channel->connection, args_, status);
    return status;
  }
  while (status.ok() && !is_all_sent()) status = send_next();
  order_.unlock();
  return status;
}

Status Sending::send_some(bool& any) {
  if (!order_.owns_lock() && !order_.try_lock()) return {};
  Status status;
  while (status.ok() && !is_all_sent() && to_->channel->queue->has_free_slot()) {
    status = send_next();
    any = true;
  }
  // Until the header is sent, another message may as well be.
  if (!status.ok() || is_all_sent() || !has_header_) order_.unlock();
  return status;
}

std::shared_ptr<Awaitable> Sending::take_parts() {
  return std::make_shared<StartedParts>(args_, std::exchange(parts_, {}));
}

Status Sending::send_next() {
  if (const auto unsent = has_header_ ? std::nullopt : to_->first_unsent())
    return send_unsent(*unsent);
  if (!has_header_) return send_header();
  const std::byte* next = static_cast<const std::byte*>(args_.in) + done_;
  const uint64_t bytes = part_bytes(bytes_, done_);
  done_ += bytes;
  return broadcast(next, bytes, kPartDtype);
}

// Tells the receiver of a message before this one that was not sent.
Status Sending::send_unsent(const Unsent& unsent) {
  MessageHeader header{};
  write_refusal(unsent, header);
  Group& channel = *to_->channel;
  const auto left = std::chrono::ceil<Millis>(time_.deadline - Clock::now()).count();
  const tutti_options options = options_with(left);
  const CollectiveArgs part{TUTTI_BROADCAST, &header, &header, sizeof(header), kHeaderDtype};
  StartedOp started(channel.connection, channel.queue);
  if (Status s = run(channel, part, &options, started.op()); !s.ok())
    return to_->keep_place(*to_->channel->connection, args_, s), s;
  started.abandon();
  to_->drop_first_unsent();
  return {};
}

Status Sending::send_header() {
  MessageHeader header{};
  header.shape = {MessageHeader::kMagic, static_cast<uint32_t>(args_.dtype), args_.count,
                  args_.tag};
  if (args_.refusal != nullptr) write_refusal({args_.tag, args_.any_tag, *args_.refusal}, header);
  has_header_ = true;
  if (bytes_ <= header.data.size()) {
    if (bytes_ != 0) std::memcpy(header.data.data(), args_.in, bytes_);
    done_ = bytes_;
  }
  Status sent = broadcast(&header, sizeof(header), kHeaderDtype);
  if (!sent.ok()) to_->keep_place(*to_->channel->connection, args_, sent);
  return sent;
}

// Waits for the last broadcast alone, and for those that are not copied.
Status Sending::broadcast(const void* data, uint64_t bytes, tutti_dtype dtype) {
  Group& channel = *to_->channel;
  const CollectiveArgs part{TUTTI_BROADCAST, data, const_cast<void*>(data), bytes, dtype};
  const auto left = std::chrono::ceil<Millis>(time_.deadline - Clock::now()).count();
  const tutti_options options = options_with(left);
  if (dtype == kPartDtype && left <= 0) return refuse_part(channel, part, options);
  if (waits_ && (is_all_sent() || bytes == kMessagePartBytes))
    return run(channel, part, &options, nullptr);
  auto started = std::make_shared<StartedOp>(channel.connection, channel.queue);
  if (Status s = run(channel, part, &options, started->op()); !s.ok()) return s;
  if (is_shared_ || is_all_sent())
    parts_.push_back(std::move(started));
  else
    started->abandon();
  return {};
}

// ---- All of a rank ----

Status Outbox::open(Outgoing& to, uint32_t destination, TimePoint deadline) {
  const std::unique_lock lock(making_, deadline + kAnswerGrace);
  if (!lock) return members_.connection->worker_timeout();  // It has not answered another thread.
  if (to.channel != nullptr) return {};
  Result<std::unique_ptr<Group>> channel =
      make_channel(members_, members_.rank, destination, deadline);
  if (!channel.ok()) return channel.status();
  to.channel = *std::move(channel);
  return {};
}

std::shared_ptr<Outgoing> Outbox::find(uint32_t destination) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Outgoing>& found = outgoing_[destination];
  if (found == nullptr) found = std::make_shared<Outgoing>();
  return found;
}

void Outbox::keep_place(const SendArgs& args, const Status& why) {
  find(static_cast<uint32_t>(args.destination))->keep_place(*members_.connection, args, why);
}

Result<std::shared_ptr<Outgoing>> Outbox::outgoing(const SendArgs& args, TimePoint deadline) {
  const auto destination = static_cast<uint32_t>(args.destination);
  const std::shared_ptr<Outgoing> to = find(destination);
  if (Status s = open(*to, destination, deadline); !s.ok()) {
    to->keep_place(*members_.connection, args, s);
    return s;
  }
  return to;
}

Status Outbox::send(const SendArgs& args, const MessageTime& time,
                    std::shared_ptr<Awaitable>* work) {
  const Result<std::shared_ptr<Outgoing>> to = outgoing(args, time.deadline);
  if (!to.ok()) return with_name_of(args, to.status());
  Sending sending(*to, args, time, work == nullptr);
  if (Status s = sending.send_all(); !s.ok()) return with_name_of(args, s);
  if (work != nullptr) *work = sending.take_parts();
  return {};
}

Status Outbox::prepare(const SendArgs& args, const MessageTime& time,
                       std::unique_ptr<Sending>& sending) {
  const Result<std::shared_ptr<Outgoing>> to = outgoing(args, time.deadline);
  if (!to.ok()) return with_name_of(args, to.status());
  sending = std::make_unique<Sending>(*to, args, time, false);
  return {};
}

}  // namespace tutti::client

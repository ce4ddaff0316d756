#include "daemon/transport/grpc_link.h"

#include <chrono>
#include <utility>

namespace tutti {
namespace {

// How long a peer is given to hear a goodbye before the stream is cut.
constexpr int kLingerMs = 500;

}  // namespace

bool GrpcHub::keep(std::shared_ptr<GrpcLink> link) {
  std::lock_guard lock(mutex_);
  if (!closing_) links_.insert(std::move(link));
  return !closing_;
}

void GrpcHub::forget(const std::shared_ptr<GrpcLink>& link) {
  std::lock_guard lock(mutex_);
  links_.erase(link);
  changed_.notify_all();
}

void GrpcHub::close_all(const Status& cause) {
  std::unique_lock lock(mutex_);
  closing_ = true;
  const std::set<std::shared_ptr<GrpcLink>> links = links_;
  lock.unlock();
  for (const auto& link : links) link->close(cause);
  lock.lock();
  changed_.wait(lock, [this] { return links_.empty(); });
}

GrpcLink::GrpcLink(std::shared_ptr<GrpcHub> hub, std::string peer)
    : hub_(std::move(hub)),
      peer_(std::move(peer)),
      budget_(std::make_shared<SendBudget>(hub_->limits.queue_bytes_max)),
      checker_(hub_->limits.frame_bytes_max) {}

Status GrpcLink::send(Outgoing frame) {
  Status allowed = check_outgoing(frame.header, frame.bytes.size(), hub_->limits.frame_bytes_max);
  if (!allowed.ok()) return allowed;
  std::lock_guard lock(mutex_);
  if (state_ >= State::ending) return unavailable("the link to " + peer_ + " is closed");
  auto borrow = Borrow::take(frame, budget_, hub_->lending);
  if (!borrow) return resource_exhausted("the queue of the link to " + peer_ + " is full");
  queue_.push_back(std::move(borrow));
  pump_locked();
  return {};
}

void GrpcLink::close(Status cause) {
  Status theirs = unavailable("the peer closed the link: " + cause.message());
  end(std::move(cause), std::move(theirs));
}

void GrpcLink::end(Status mine, Status theirs) {
  std::lock_guard lock(mutex_);
  if (state_ >= State::ending) return;
  ending_ = state_ == State::open ? Ending::told : Ending::unheard;
  cause_ = std::move(mine);
  their_cause_ = std::move(theirs);
  set_alarm(kLingerMs);
  stop_locked();
}

void GrpcLink::break_off() {
  std::lock_guard lock(mutex_);
  ending_ = Ending::broken;
  stop_locked();
}

void GrpcLink::stop_locked() {
  state_ = std::max(state_, State::ending);
  drop_queue_locked();
  resume_locked();
  if (!writing_) finish_locked();
}

void GrpcLink::drop_queue_locked() {
  auto dropped = std::make_shared<decltype(queue_)>(std::exchange(queue_, {}));
  hub_->courier.post([dropped = std::move(dropped)]() mutable { dropped.reset(); });
}

void GrpcLink::finish_locked() {
  if (!std::exchange(finished_, true)) finish(their_cause_, ending_);
}

void GrpcLink::pump_locked() {
  if (state_ != State::open || writing_ || queue_.empty()) return;
  std::unique_ptr<Borrow> borrow = std::move(queue_.front());
  queue_.pop_front();
  borrow->header = sealer_.seal(borrow->header, borrow->bytes().size());
  outgoing_ = pack_frame(std::move(borrow), hub_->courier);
  writing_ = true;
  start_write(&outgoing_);
}

void GrpcLink::opened() {
  std::lock_guard lock(mutex_);
  if (state_ != State::waiting) return;
  state_ = State::open;
  start_read(&incoming_);
  pump_locked();
}

void GrpcLink::was_written(bool ok) {
  grpc::ByteBuffer written;
  std::lock_guard lock(mutex_);
  written.Swap(&outgoing_);
  writing_ = false;
  if (!ok) ending_ = Ending::broken;
  if (ok && state_ == State::open)
    pump_locked();
  else
    stop_locked();
}

void GrpcLink::was_read(bool ok) {
  if (!ok) return break_off();
  grpc::ByteBuffer message;
  message.Swap(&incoming_);
  receive(message);
  message.Clear();
  std::lock_guard lock(mutex_);
  paused_ = state_ == State::open && kept_bytes_ > hub_->limits.queue_bytes_max;
  // A dialler reads on while the link ends, for gRPC gives it the status behind the last message.
  if (!paused_) start_read(&incoming_);
}

void GrpcLink::dropped(size_t bytes) {
  std::lock_guard lock(mutex_);
  kept_bytes_ -= bytes;
  if (kept_bytes_ <= hub_->limits.queue_bytes_max) resume_locked();
}

void GrpcLink::resume_locked() {
  if (std::exchange(paused_, false)) start_read(&incoming_);
}

Status GrpcLink::check(const Frame& frame) {
  std::lock_guard lock(mutex_);
  return checker_.check(frame.header, frame.payload.bytes());
}

void GrpcLink::receive(const grpc::ByteBuffer& message) {
  auto frame = unpack_frame(message);
  const Status good = frame.ok() ? check(*frame) : frame.status();
  if (good.ok()) return take(*std::move(frame));
  end(Status(good.code(), "from " + peer_ + ": " + good.message()), unavailable(good.message()));
}

void GrpcLink::take(Frame frame) {
  if (frame.header.kind == FrameKind::ping) return;
  if (frame.header.kind == FrameKind::goodbye) {
    std::string text(frame.payload.bytes(), '\0');
    frame.payload.copy_to(reinterpret_cast<std::byte*>(text.data()));
    end(unavailable(cut_text(std::move(text))), {});
    return;
  }
  std::unique_lock lock(mutex_);
  if (state_ != State::open) return;
  const std::shared_ptr<LinkHandler> handler = handler_;
  const size_t bytes = sizeof(FrameHeader) + frame.payload.bytes();
  kept_bytes_ += bytes;
  lock.unlock();
  frame.payload = counted(std::move(frame.payload), [weak = weak_from_this(), bytes] {
    if (auto link = weak.lock()) link->dropped(bytes);
  });
  handler->on_frame(std::move(frame));
}

void GrpcLink::done(Status cause) {
  std::unique_lock lock(mutex_);
  state_ = State::done;
  drop_queue_locked();
  outgoing_.Clear();
  drop_stream();
  const std::shared_ptr<LinkHandler> handler = std::exchange(handler_, nullptr);
  if (cause_) cause = *cause_;
  lock.unlock();
  if (handler) handler->on_closed(std::move(cause));
  hub_->forget(shared_from_this());
}

void GrpcLink::set_handler(std::shared_ptr<LinkHandler> handler) {
  std::lock_guard lock(mutex_);
  handler_ = std::move(handler);
}

void GrpcLink::set_alarm(int delay_ms) {
  const auto when = std::chrono::steady_clock::now() + std::chrono::milliseconds(delay_ms);
  hub_->courier.post_at(when, [weak = weak_from_this()] {
    if (auto link = weak.lock()) link->expired();
  });
}

void GrpcLink::expired() {
  const int waited_ms = hub_->limits.connect_timeout_ms;
  const Status late = deadline_exceeded(peer_ + " did not accept the link within " +
                                        std::to_string(waited_ms) + " ms");
  std::lock_guard lock(mutex_);
  if (state_ == State::open || state_ == State::done) return;
  if (state_ == State::waiting) cause_ = late;
  stop_locked();
  cancel();
}

}  // namespace tutti

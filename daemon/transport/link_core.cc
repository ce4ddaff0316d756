#include "daemon/transport/link_core.h"

#include <algorithm>

namespace tutti {
namespace {

constexpr Millis kGoodbyeTimeout{500};  // For the peer to read a goodbye.

std::string truncated(const std::string& text) { return text.substr(0, kLinkTextBytesMax); }

}  // namespace

LinkCore::LinkCore(std::shared_ptr<TransportCore> transport, std::string peer,
                   std::shared_ptr<LinkHandler> handler)
    : transport_(std::move(transport)),
      peer_(std::move(peer)),
      budget_(std::make_shared<SendBudget>(transport_->limits.queue_bytes_max)),
      handler_(std::move(handler)) {}

// ---- Any thread ----

Status LinkCore::send(Outgoing frame) {
  Status allowed =
      check_outgoing(frame.header, frame.bytes.size(), transport_->limits.frame_bytes_max);
  if (!allowed.ok()) return allowed;
  const std::lock_guard lock(mutex_);
  if (state_ >= State::closing)
    return unavailable("the link to " + peer_ +
                       " is closed: " + cause_.value_or(Status()).message());
  auto accepted = PendingFrame::accept(frame, budget_, transport_->pending_frames);
  if (!accepted) return resource_exhausted("the queue of the link to " + peer_ + " is full");
  queue_.push_back(std::move(accepted));
  if (state_ == State::open) wake_writer_locked();
  return {};
}

void LinkCore::close(Status cause) {
  const bool waits = state() == State::connecting;
  Status peer_cause = waits ? cause : unavailable("the peer closed the link: " + cause.message());
  close_with(std::move(cause), std::move(peer_cause));
}

void LinkCore::close_with(Status own_cause, Status peer_cause) {
  const std::lock_guard lock(mutex_);
  if (state_ >= State::closing) return;
  state_ = State::closing;
  cause_ = std::move(own_cause);
  peer_cause_ = std::move(peer_cause);
  post_locked(&LinkCore::shut_down);
}

void LinkCore::close_on_bad_frame(const Status& bad) {
  close_with({bad.code(), "from " + peer_ + ": " + bad.message()}, unavailable(bad.message()));
}

void LinkCore::post_fail(Status cause) {
  const std::lock_guard lock(mutex_);
  if (start_closing_locked(std::move(cause))) post_locked(&LinkCore::close_wire);
}

// Returns false if the link is closed. The first cause is kept.
bool LinkCore::start_closing_locked(Status cause) {
  if (state_ == State::closed) return false;
  state_ = State::closing;
  if (!cause_) cause_ = std::move(cause);
  return true;
}

void LinkCore::post(Loop::Task task) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::closed) transport_->loop.post(std::move(task));
}

LinkCore::State LinkCore::state() {
  const std::lock_guard lock(mutex_);
  return state_;
}

// ---- Opening and closing ----

void LinkCore::set_timer(Millis delay, void (LinkCore::*task)()) {
  transport_->loop.cancel(timer_);
  timer_ = transport_->loop.at(Clock::now() + delay,
                               [self = shared_from_this(), task] { (self.get()->*task)(); });
}

void LinkCore::start_open_timer(const std::string& failure) {
  open_failure_ = failure;
  set_timer(Millis(transport_->limits.connect_timeout_ms), &LinkCore::on_open_timeout);
}

void LinkCore::on_open_timeout() {
  close_with(
      deadline_exceeded(peer_ + " " + open_failure_ + " within " +
                        std::to_string(transport_->limits.connect_timeout_ms) + " ms" + refusal_),
      unavailable("the link was not accepted in time"));
}

void LinkCore::offer_to(const Acceptor& acceptor, const std::string& transcript,
                        const LinkProof& proof, const std::string& address) {
  if (state() == State::closed) return;
  const auto on_verified = [weak = weak_from_this()](std::string answer, const LinkTerms& terms) {
    const auto link = weak.lock();
    if (!link) return;
    link->post([link, answer = std::move(answer), terms] {
      if (link->state() == State::connecting) link->welcome(answer, terms);
    });
  };
  transport_->add_half_open(address, shared_from_this());
  start_open_timer("was not let in");
  (void)call_acceptor(acceptor,
                      incoming_link(transcript, proof, address, transport_->limits, on_verified));
}

bool LinkCore::call_acceptor(const Acceptor& acceptor, const IncomingLink& incoming) {
  if (state() != State::connecting) return false;
  auto handler = acceptor(incoming, shared_from_this());
  if (!handler.ok()) {
    close_with(handler.status(), handler.status());
    return false;
  }
  const std::lock_guard lock(mutex_);
  handler_ = *std::move(handler);
  return true;
}

// If the link was closed meanwhile, shut_down() is already posted and says goodbye.
bool LinkCore::set_open(int silence_ms) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::closed) return false;
    if (state_ == State::connecting) state_ = State::open;
    opened_ = true;
    if (!queue_.empty()) wake_writer_locked();
    wake_reader_locked();
  }
  transport_->remove_half_open(shared_from_this());
  silence_ms_ = silence_ms;
  tick_ = std::max(Millis(silence_ms) / kSilentTicksMax, Millis(1));
  set_timer(tick_, &LinkCore::on_tick);
  return true;
}

void LinkCore::fail(Status cause) {
  {
    const std::lock_guard lock(mutex_);
    if (!start_closing_locked(std::move(cause))) return;
  }
  close_wire();
}

void LinkCore::shut_down() {
  Queue unsent;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::closed || std::exchange(shutting_down_, true)) return;
    if (paused_.exchange(false)) wake_reader_locked();
    unsent.swap(queue_);
    if (opened_) queue_internal_locked(FrameKind::goodbye, truncated(peer_cause_.message()));
  }
  unsent.clear();
  set_timer(kGoodbyeTimeout, &LinkCore::close_wire);
  if (!opened_) refuse(peer_cause_);
}

void LinkCore::on_wire_closed(Status cause) {
  Queue unsent;
  std::shared_ptr<LinkHandler> handler;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::closed) return;
    state_ = State::closed;
    unsent.swap(queue_);
    handler = std::exchange(handler_, nullptr);
    if (!cause_) cause_ = std::move(cause);
    cause = *cause_;
  }
  transport_->loop.cancel(timer_);
  transport_->remove_half_open(shared_from_this());
  unsent.clear();
  if (handler) handler->on_closed(std::move(cause));
  transport_->remove(shared_from_this());
}

// ---- Writing ----

std::unique_ptr<PendingFrame> LinkCore::next_frame_locked() {
  const bool may_send = state_ == State::open || shutting_down_;
  if (!may_send || queue_.empty()) return nullptr;
  std::unique_ptr<PendingFrame> next = std::move(queue_.front());
  queue_.pop_front();
  next->header = sequencer_.complete(next->header, next->bytes().size());
  return next;
}

void LinkCore::queue_internal_locked(FrameKind kind, const std::string& text) {
  queue_.push_back(PendingFrame::make_internal(kind, text, transport_->pending_frames));
  wake_writer_locked();
}

// ---- Reading ----

void LinkCore::deliver(Frame frame) {
  const std::shared_ptr<LinkHandler> handler = receiver_of(frame);
  if (handler == nullptr) return;
  const size_t bytes = kKeptFrameBytes + frame.header.payload_bytes;
  kept_bytes_ += bytes;
  std::shared_ptr<const void>& owner = frame.payload.owner;
  const void* const address = owner.get();
  owner = std::shared_ptr<const void>(
      address, [kept = std::move(owner), weak = weak_from_this(), bytes](const void*) mutable {
        kept.reset();
        if (const auto link = weak.lock()) link->on_payload_dropped(bytes);
      });
  handler->on_frame(std::move(frame));
}

// Returns null if the frame is the link's own or the link is no longer open.
std::shared_ptr<LinkHandler> LinkCore::receiver_of(const Frame& frame) {
  note_received();
  if (frame.header.kind == FrameKind::ping) return nullptr;
  if (frame.header.kind == FrameKind::goodbye) {
    std::string text(frame.payload.bytes(), '\0');
    frame.payload.copy_to(reinterpret_cast<std::byte*>(text.data()));
    post_fail(unavailable(truncated(text)));
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  return state_ == State::open ? handler_ : nullptr;
}

bool LinkCore::pause_reading_if_full() {
  const auto full = [this] {
    return kept_bytes_ > transport_->limits.queue_bytes_max && state() == State::open;
  };
  if (!full()) return false;
  paused_ = true;
  // Checked again: what was dropped or closed before paused_ was set has woken no reader.
  return full() || !paused_.exchange(false);
}

void LinkCore::on_payload_dropped(size_t bytes) {
  kept_bytes_ -= bytes;
  if (kept_bytes_ > transport_->limits.queue_bytes_max || !paused_) return;
  const std::lock_guard lock(mutex_);
  if (state_ != State::closed && paused_.exchange(false)) wake_reader_locked();
}

// ---- Silence ----

void LinkCore::on_tick() {
  set_timer(tick_, &LinkCore::on_tick);
  {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) queue_internal_locked(FrameKind::ping, {});
  }
  const bool is_alive = peer_is_alive();  // Each forgets what it has seen.
  silent_ticks_ = received_since_tick_.exchange(false) || is_alive ? 0 : silent_ticks_ + 1;
  const std::string limit = " for more than " +
                            std::to_string(silence_ms_ * (kSilentTicksMax - 1) / kSilentTicksMax) +
                            " ms (silence_ms = " + std::to_string(silence_ms_) + ")";
  const Status cause = unavailable(peer_ + " has not answered" + limit);
  // One more passed before the first.
  if (silent_ticks_ >= kSilentTicksMax - 1) return fail(cause);
  // The peer still reads what comes by this connection.
  if (is_stuck()) close_with(cause, unavailable("what it sent got no answer" + limit));
}

}  // namespace tutti

#include "daemon/transport/link_core.h"

#include <algorithm>

#include "daemon/transport/handshake.h"

namespace tutti {
namespace {

constexpr Millis kLinger{500};  // How long a peer is given to hear a goodbye.
constexpr int kSilentTicks = 4;

std::string cut_text(const std::string& text) { return text.substr(0, kLinkTextBytesMax); }

}  // namespace

// ---- The hub ----

bool LinkHub::keep(std::shared_ptr<LinkCore> link) {
  const std::lock_guard lock(mutex_);
  if (!closing_) links_.insert(std::move(link));
  return !closing_;
}

void LinkHub::forget(const std::shared_ptr<LinkCore>& link) {
  const std::lock_guard lock(mutex_);
  links_.erase(link);
  changed_.notify_all();
}

LinkSet LinkHub::links() {
  const std::lock_guard lock(mutex_);
  return links_;
}

void LinkHub::close_all(const Status& cause) {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  for (const auto& link : links()) link->close(cause);
}

void LinkHub::wait_none() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return links_.empty(); });
}

void LinkHub::park(std::shared_ptr<LinkCore> link) {
  parked_.push_back(std::move(link));
  if (parked_.size() <= limits.half_open_max) return;
  const std::shared_ptr<LinkCore> oldest = parked_.front();
  parked_.pop_front();
  const Status full = resource_exhausted("too many links wait to be let in");
  oldest->end(full, full);
  oldest->wind_up();
}

// ---- Any thread ----

LinkCore::LinkCore(std::shared_ptr<LinkHub> hub, std::string peer,
                   std::shared_ptr<LinkHandler> handler)
    : hub_(std::move(hub)),
      peer_(std::move(peer)),
      budget_(std::make_shared<SendBudget>(hub_->limits.queue_bytes_max)),
      handler_(std::move(handler)) {}

Status LinkCore::send(Outgoing frame) {
  Status allowed = check_outgoing(frame.header, frame.bytes.size(), hub_->limits.frame_bytes_max);
  if (!allowed.ok()) return allowed;
  const std::lock_guard lock(mutex_);
  if (state_ >= State::ending) return unavailable("the link to " + peer_ + " is closed");
  auto borrow = Borrow::take(frame, budget_, hub_->lending);
  if (!borrow) return resource_exhausted("the queue of the link to " + peer_ + " is full");
  queue_.push_back(std::move(borrow));
  if (state_ == State::open) wake_writer_locked();
  return {};
}

void LinkCore::close(Status cause) {
  Status theirs = unavailable("the peer closed the link: " + cause.message());
  end(std::move(cause), std::move(theirs));
}

void LinkCore::end(Status mine, Status theirs) {
  const std::lock_guard lock(mutex_);
  if (state_ >= State::ending) return;
  state_ = State::ending;
  cause_ = std::move(mine);
  their_cause_ = std::move(theirs);
  post_locked(&LinkCore::wind_up);
}

void LinkCore::refuse_frame(const Status& bad) {
  end({bad.code(), "from " + peer_ + ": " + bad.message()}, unavailable(bad.message()));
}

void LinkCore::lost(Status cause) {
  const std::lock_guard lock(mutex_);
  if (set_cause_locked(std::move(cause))) post_locked(&LinkCore::cut);
}

// False: the link is done.
bool LinkCore::set_cause_locked(Status cause) {
  if (state_ == State::done) return false;
  state_ = State::ending;
  if (!cause_) cause_ = std::move(cause);
  return true;
}

void LinkCore::post(Loop::Task task) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::done) hub_->loop.post(std::move(task));
}

LinkCore::State LinkCore::state() {
  const std::lock_guard lock(mutex_);
  return state_;
}

// ---- Beginning and end, on the loop ----

void LinkCore::set_timer(Millis delay, void (LinkCore::*task)()) {
  hub_->loop.cancel(timer_);
  timer_ = hub_->loop.at(Clock::now() + delay,
                         [self = shared_from_this(), task] { (self.get()->*task)(); });
}

void LinkCore::expect_opening(const std::string& what) {
  not_done_ = what;
  set_timer(Millis(hub_->limits.connect_timeout_ms), &LinkCore::late);
}

void LinkCore::late() {
  end(deadline_exceeded(peer_ + " " + not_done_ + " within " +
                        std::to_string(hub_->limits.connect_timeout_ms) + " ms"),
      unavailable("the link was not let in in time"));
}

void LinkCore::ask(const Acceptor& acceptor, const std::string& said, const LinkProof& shown) {
  if (state() == State::done) return;
  silence_ms_ = silence_of(said, hub_->limits);
  const IncomingLink guest = guest_of(said, shown, [weak = weak_from_this()](std::string answer) {
    const auto link = weak.lock();
    if (!link) return;
    link->post([link, answer = std::move(answer)] {
      if (link->state() == State::waiting) link->welcome(answer);
    });
  });
  hub_->park(shared_from_this());
  expect_opening("was not let in");
  (void)put_to(acceptor, guest);
}

bool LinkCore::put_to(const Acceptor& acceptor, const IncomingLink& guest) {
  if (state() != State::waiting) return false;
  auto handler = acceptor(guest, shared_from_this());
  if (!handler.ok()) {
    end(handler.status(), handler.status());
    return false;
  }
  const std::lock_guard lock(mutex_);
  handler_ = *std::move(handler);
  return true;
}

// Where the link was closed meanwhile, wind_up() is on its way, and says goodbye.
bool LinkCore::opened(int silence_ms) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::done) return false;
    if (state_ == State::waiting) state_ = State::open;
    opened_ = true;
    if (!queue_.empty()) wake_writer_locked();
    wake_reader_locked();
  }
  hub_->unpark(shared_from_this());
  silence_ms_ = silence_ms;
  tick_ = std::max(Millis(silence_ms) / kSilentTicks, Millis(1));
  set_timer(tick_, &LinkCore::tick);
  return true;
}

void LinkCore::break_off(Status cause) {
  {
    const std::lock_guard lock(mutex_);
    if (!set_cause_locked(std::move(cause))) return;
  }
  cut();
}

void LinkCore::wind_up() {
  Queue unsent;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::done || std::exchange(winding_up_, true)) return;
    if (paused_.exchange(false)) wake_reader_locked();
    unsent.swap(queue_);
    if (opened_) queue_own_locked(FrameKind::goodbye, cut_text(their_cause_.message()));
  }
  unsent.clear();
  set_timer(kLinger, &LinkCore::cut);
  if (!opened_) refuse(their_cause_);
}

void LinkCore::finished(Status cause) {
  Queue unsent;
  std::shared_ptr<LinkHandler> handler;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::done) return;
    state_ = State::done;
    unsent.swap(queue_);
    handler = std::exchange(handler_, nullptr);
    if (cause_) cause = *cause_;
  }
  hub_->loop.cancel(timer_);
  hub_->unpark(shared_from_this());
  unsent.clear();
  if (handler) handler->on_closed(std::move(cause));
  hub_->forget(shared_from_this());
}

// ---- Writing ----

std::unique_ptr<Borrow> LinkCore::next_locked() {
  const bool may_speak = state_ == State::open || winding_up_;
  if (!may_speak || queue_.empty()) return nullptr;
  std::unique_ptr<Borrow> next = std::move(queue_.front());
  queue_.pop_front();
  next->header = sealer_.seal(next->header, next->bytes().size());
  if (next->header.kind != FrameKind::ping) spoke_ = true;  // Or every second quarter had none.
  return next;
}

void LinkCore::queue_own_locked(FrameKind kind, const std::string& text) {
  queue_.push_back(Borrow::own(kind, text, hub_->lending));
  wake_writer_locked();
}

// ---- Reading ----

// Null where the frame is the link's own, or comes too late.
std::shared_ptr<LinkHandler> LinkCore::receiver_of(const Frame& frame) {
  heard();
  if (frame.header.kind == FrameKind::ping) return nullptr;
  if (frame.header.kind == FrameKind::goodbye) {
    std::string text(frame.payload.bytes(), '\0');
    frame.payload.copy_to(reinterpret_cast<std::byte*>(text.data()));
    lost(unavailable(cut_text(text)));
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  return state_ == State::open ? handler_ : nullptr;
}

bool LinkCore::holds_back() {
  if (kept_bytes_ <= hub_->limits.queue_bytes_max || state() != State::open) return false;
  paused_ = true;
  // What was dropped, or ended, in between found nothing to resume.
  const bool holds = kept_bytes_ > hub_->limits.queue_bytes_max && state() == State::open;
  return holds || !paused_.exchange(false);
}

void LinkCore::dropped(size_t bytes) {
  kept_bytes_ -= bytes;
  if (kept_bytes_ > hub_->limits.queue_bytes_max || !paused_) return;
  const std::lock_guard lock(mutex_);
  if (state_ != State::done && paused_.exchange(false)) wake_reader_locked();
}

// ---- Silence ----

void LinkCore::tick() {
  set_timer(tick_, &LinkCore::tick);
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(spoke_, false) && queue_.empty()) queue_own_locked(FrameKind::ping, {});
  }
  quiet_ticks_ = heard_.exchange(false) || shows_life() ? 0 : quiet_ticks_ + 1;
  if (quiet_ticks_ < kSilentTicks - 1) return;  // And up to one more before the first.
  const int least_ms = silence_ms_ * (kSilentTicks - 1) / kSilentTicks;
  break_off(unavailable(peer_ + " has not answered for more than " + std::to_string(least_ms) +
                        " ms (silence_ms = " + std::to_string(silence_ms_) + ")"));
}

}  // namespace tutti

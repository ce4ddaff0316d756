#include "daemon/transport/tcp_link.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/handshake.h"

namespace tutti {
namespace {

constexpr Millis kLinger{500};                   // How long a peer is given to hear a goodbye.
constexpr size_t kPartsMost = 64;                // Of one write.
constexpr size_t kWriteBytes = size_t{1} << 20;  // Written before anything is read.

}  // namespace

TcpLink::TcpLink(std::shared_ptr<TcpHub> hub, std::string peer,
                 std::shared_ptr<LinkHandler> handler)
    : hub_(std::move(hub)),
      peer_(std::move(peer)),
      budget_(std::make_shared<SendBudget>(hub_->limits.queue_bytes_max)),
      handler_(std::move(handler)),
      reader_(hub_->pool, hub_->limits.frame_bytes_max) {}

std::span<const std::byte> TcpLink::Parcel::bytes() const {
  return borrow ? borrow->bytes() : std::as_bytes(std::span(text));
}

// ---- Any thread ----

Status TcpLink::send(Outgoing frame) {
  Status allowed = check_outgoing(frame.header, frame.bytes.size(), hub_->limits.frame_bytes_max);
  if (!allowed.ok()) return allowed;
  const std::lock_guard lock(mutex_);
  if (state_ >= State::ending) return unavailable("the link to " + peer_ + " is closed");
  auto borrow = Borrow::take(frame, budget_, hub_->lending);
  if (!borrow) return resource_exhausted("the queue of the link to " + peer_ + " is full");
  queue_.push_back(std::move(borrow));
  if (state_ == State::open) flush_soon_locked();
  return {};
}

void TcpLink::flush_soon_locked() {
  if (std::exchange(flush_posted_, true)) return;
  hub_->loop.post([self = shared_from_this()] { self->flush(); });
}

void TcpLink::close(Status cause) {
  Status theirs = unavailable("the peer closed the link: " + cause.message());
  end(std::move(cause), std::move(theirs));
}

void TcpLink::end(Status mine, Status theirs) {
  const std::lock_guard lock(mutex_);
  if (state_ >= State::ending) return;
  state_ = State::ending;
  cause_ = std::move(mine);
  their_cause_ = std::move(theirs);
  hub_->loop.post([self = shared_from_this()] { self->wind_up(); });
}

Status TcpLink::broken(const std::string& why) const {
  return unavailable("the link to " + peer_ + " broke: " + why);
}

TcpLink::State TcpLink::state() {
  const std::lock_guard lock(mutex_);
  return state_;
}

// ---- Beginning and end ----

bool TcpLink::set_opening(GiveUp give_up) {
  if (state() == State::done) return false;
  give_up_ = std::move(give_up);
  return true;
}

// Where the link was closed meanwhile, wind_up() is on its way, and will need the socket.
void TcpLink::open(Fd socket, int silence_ms) {
  give_up_ = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::done) return;
    if (state_ == State::waiting) state_ = State::open;
    if (state_ == State::open && !queue_.empty()) flush_soon_locked();
  }
  socket_ = std::move(socket);
  tick_ = std::max(Millis(silence_ms) / kSilentTicks, Millis(1));
  timer_ = hub_->loop.at(Clock::now() + tick_, [self = shared_from_this()] { self->tick(); });
  const Status watched =
      hub_->loop.watch(socket_.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                       [self = shared_from_this()](uint32_t events) { self->ready(events); });
  if (!watched.ok()) break_off(watched);
}

void TcpLink::break_off(Status cause) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::done) return;
    state_ = State::ending;
    if (!cause_) cause_ = std::move(cause);
  }
  finish();
}

// Says goodbye behind the frame that is partly out; what is not begun is dropped.
void TcpLink::wind_up() {
  if (std::exchange(winding_up_, true)) return;
  if (const GiveUp give_up = std::exchange(give_up_, nullptr)) give_up(their_cause_);
  if (!socket_.valid()) return finish();
  std::deque<std::unique_ptr<Borrow>> unsent;
  {
    const std::lock_guard lock(mutex_);
    unsent.swap(queue_);
  }
  unsent.clear();
  add_own(FrameKind::goodbye, their_cause_.message().substr(0, kLinkTextBytesMax));
  Parcel goodbye = std::move(writing_.back());
  const size_t begun = written_ > 0 ? 1 : 0;
  goodbye.header.link_seq = writing_[begun].header.link_seq;  // Of the first that is dropped.
  writing_.resize(begun);
  writing_.push_back(std::move(goodbye));
  hub_->loop.cancel(timer_);
  timer_ = hub_->loop.at(Clock::now() + kLinger, [self = shared_from_this()] { self->finish(); });
  write_some();
  read_soon();
}

void TcpLink::finish() {
  std::deque<std::unique_ptr<Borrow>> unsent;
  Status cause;
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::done) return;
    state_ = State::done;
    unsent.swap(queue_);
    cause = *cause_;
  }
  hub_->loop.cancel(timer_);
  give_up_ = nullptr;
  if (socket_.valid()) hub_->loop.unwatch(socket_.get());
  socket_.reset();
  unsent.clear();
  writing_.clear();
  if (const auto handler = std::exchange(handler_, nullptr)) handler->on_closed(std::move(cause));
  hub_->forget(shared_from_this());
}

// ---- Writing ----

void TcpLink::add_own(FrameKind kind, std::string text) {
  Parcel& parcel = writing_.emplace_back();
  parcel.text = std::move(text);
  parcel.header.kind = kind;
  parcel.header = sealer_.seal(parcel.header, parcel.text.size());
}

void TcpLink::flush() {
  {
    const std::lock_guard lock(mutex_);
    flush_posted_ = false;
    if (state_ != State::open) return;
    for (std::unique_ptr<Borrow>& borrow : queue_) {
      Parcel& parcel = writing_.emplace_back();
      parcel.header = sealer_.seal(borrow->header, borrow->bytes().size());
      parcel.borrow = std::move(borrow);
    }
    queue_.clear();
  }
  write_some();
}

void TcpLink::write_some() {
  size_t sum = 0;
  while (!writing_.empty() && !blocked_) {
    if (sum >= kWriteBytes) {
      const std::lock_guard lock(mutex_);
      if (state_ == State::open) return flush_soon_locked();
    }
    const ssize_t wrote = write_once();
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) {
      blocked_ = true;
    } else if (wrote < 0) {
      return cannot_write(errno);
    } else {
      sum += static_cast<size_t>(wrote);
      written(static_cast<size_t>(wrote));
    }
  }
  if (winding_up_ && writing_.empty() && socket_.valid()) shutdown(socket_.get(), SHUT_WR);
}

// The peer may have said why: what it sent is read before the link breaks.
void TcpLink::cannot_write(int error) {
  blocked_ = true;
  if (paused_) return break_off(broken(std::strerror(error)));
  empty_ = false;
  read_soon();
}

// Headers and payloads of several frames in one call, straight from where they lie.
ssize_t TcpLink::write_once() {
  std::array<iovec, kPartsMost> parts;
  size_t count = 0;
  size_t sum = 0;
  size_t skip = written_;
  const auto add = [&](const void* data, size_t bytes) {
    const size_t skipped = std::min(skip, bytes);
    skip -= skipped;
    const size_t left = std::min(bytes - skipped, kWriteBytes - sum);
    if (left == 0) return;
    // sendmsg only reads what it is given as mutable.
    parts[count++] = {const_cast<char*>(static_cast<const char*>(data)) + skipped, left};
    sum += left;
  };
  for (const Parcel& parcel : writing_) {
    if (count + 2 > parts.size() || sum == kWriteBytes) break;
    add(&parcel.header, sizeof(parcel.header));
    add(parcel.bytes().data(), parcel.bytes().size());
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  return sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void TcpLink::written(size_t bytes) {
  spoke_ = true;
  written_ += bytes;
  while (!writing_.empty() && written_ >= writing_.front().size()) {
    written_ -= writing_.front().size();
    const Parcel whole = std::move(writing_.front());
    writing_.pop_front();  // First, for its release may do anything.
  }
}

}  // namespace tutti

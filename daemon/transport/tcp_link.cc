#include "daemon/transport/tcp_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/transport/handshake.h"

namespace tutti {
namespace {

constexpr Millis kGoodbyeLimit{600};              // A little more than links take at most.
constexpr size_t kPartsMost = 64;                 // Of one write.
constexpr size_t kWriteBytes = size_t{1} << 20;   // Written before anything is read.
constexpr size_t kTurnBytes = size_t{256} << 10;  // Read before the loop turns to others.

size_t size_of(const Borrow& frame) { return sizeof(FrameHeader) + frame.bytes().size(); }

}  // namespace

void TcpHub::drive_to_end() {
  const auto all = [this](auto&& task) {
    const LinkSet left = links();
    for (const auto& link : left) task(static_cast<TcpLink&>(*link));
    return !left.empty();
  };
  all([](TcpLink& link) { link.wind_up(); });
  const TimePoint limit = Clock::now() + kGoodbyeLimit;
  std::vector<pollfd> sockets;
  while (Clock::now() < limit && all([&](TcpLink& link) {
           sockets.push_back({link.descriptor(), POLLIN, 0});
         })) {
    poll(sockets.data(), sockets.size(), 10);
    sockets.clear();
    all([](TcpLink& link) { link.ready(EPOLLIN | EPOLLOUT); });
  }
  all([](TcpLink& link) { link.break_off(unavailable("its transport ends")); });
}

TcpLink::TcpLink(std::shared_ptr<TcpHub> hub, std::string peer,
                 std::shared_ptr<LinkHandler> handler)
    : LinkCore(hub, std::move(peer), std::move(handler)),
      pool_(hub->pool),
      reader_(pool_, hub_->limits.frame_bytes_max) {}

Status TcpLink::broken(const std::string& why) const {
  return unavailable("the link to " + peer_ + " broke: " + why);
}

// ---- Beginning and end ----

bool TcpLink::begin_dial(std::function<void()> give_up) {
  if (state() == State::done) return false;
  give_up_ = std::move(give_up);
  expect_opening("did not accept the link");
  return true;
}

Status TcpLink::watch(uint32_t events) {
  return hub_->loop.watch(socket_.get(), events,
                          [self = std::static_pointer_cast<TcpLink>(shared_from_this())](
                              uint32_t what) { self->ready(what); });
}

bool TcpLink::wait_with(Fd socket) {
  socket_ = std::move(socket);
  return watch(EPOLLRDHUP).ok();
}

void TcpLink::open(Fd socket, int silence_ms) {
  give_up_ = nullptr;
  if (!opened(silence_ms)) return;
  socket_ = std::move(socket);
  const Status watched = watch(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  if (!watched.ok()) break_off(watched);
}

void TcpLink::welcome(const std::string& answer) {
  if (!write_at_once(socket_, answer)) return break_off(broken("it takes no answer"));
  open(std::move(socket_), silence_ms());
}

void TcpLink::refuse(const Status& why) {
  if (socket_.valid()) (void)write_at_once(socket_, write_refusal(why));
  cut();
}

void TcpLink::cut() {
  if (const auto give_up = std::exchange(give_up_, nullptr)) give_up();
  if (socket_.valid()) hub_->loop.unwatch(socket_.get());
  socket_.reset();
  std::exchange(writing_, {}).clear();
  finished(broken("it was closed"));
}

void TcpLink::ready(uint32_t events) {
  hung_up_ = hung_up_ || (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  if (!is_open()) return hung_up_ ? break_off(broken("its dialler hung up")) : void();
  if ((events & EPOLLOUT) != 0) {
    blocked_ = false;
    if (socket_.valid()) write_some();
  }
  empty_ = false;
  read_some();
}

// ---- Writing ----

void TcpLink::wake_writer_locked() {
  if (!std::exchange(flush_posted_, true)) post_locked(&TcpLink::flush);
}

void TcpLink::flush() {
  {
    const std::lock_guard lock(mutex_);
    flush_posted_ = false;
  }
  if (socket_.valid() && is_open()) write_some();
  if (is_winding_up()) read_soon();
}

// As much as one write takes. False: there is nothing to write.
bool TcpLink::refill() {
  const std::lock_guard lock(mutex_);
  while (unwritten_ < kWriteBytes && writing_.size() < kPartsMost / 2) {
    std::unique_ptr<Borrow> next = next_locked();
    if (!next) break;
    unwritten_ += size_of(*next);
    writing_.push_back(std::move(next));
  }
  return !writing_.empty();
}

void TcpLink::write_some() {
  size_t sum = 0;
  while (!blocked_ && refill()) {
    if (sum >= kWriteBytes) {
      const std::lock_guard lock(mutex_);
      return wake_writer_locked();
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
  if (is_winding_up() && writing_.empty() && socket_.valid()) shutdown(socket_.get(), SHUT_WR);
}

// The peer may have said why: what it sent is read before the link breaks.
void TcpLink::cannot_write(int error) {
  blocked_ = true;
  if (holding_) return break_off(broken(std::strerror(error)));
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
  for (const auto& frame : writing_) {
    if (count + 2 > parts.size() || sum == kWriteBytes) break;
    add(&frame->header, sizeof(frame->header));
    add(frame->bytes().data(), frame->bytes().size());
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  return sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void TcpLink::written(size_t bytes) {
  unwritten_ -= bytes;
  written_ += bytes;
  while (!writing_.empty() && written_ >= size_of(*writing_.front())) {
    written_ -= size_of(*writing_.front());
    const std::unique_ptr<Borrow> whole = std::move(writing_.front());
    writing_.pop_front();  // First, for its release may do anything.
  }
}

// ---- Reading ----

void TcpLink::read_soon() {
  if (std::exchange(read_posted_, true)) return;
  post([this, self = shared_from_this()] {
    read_posted_ = false;
    read_some();
  });
}

void TcpLink::read_some() {
  size_t sum = 0;
  while (socket_.valid() && is_open()) {
    if (is_winding_up()) return discard_some();
    holding_ = holds_back();
    if (holding_) return;
    Result<std::optional<FrameReader::Whole>> next = reader_.next(handler());
    if (!next.ok()) return refuse_frame(next.status());
    if (!next->has_value()) {
      if (!fill()) return;
      continue;
    }
    sum += sizeof(FrameHeader) + (*next)->header.payload_bytes;
    take(std::move(**next));
    if (sum >= kTurnBytes) return read_soon();
  }
}

// Whether more is to be looked at now.
bool TcpLink::fill() {
  if (empty_) return false;
  const ssize_t got = reader_.fill(socket_.get());
  if (got > 0) {
    heard();
    empty_ = reader_.was_short() && !hung_up_;  // Else the end of the stream is behind it.
    return true;
  }
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && errno == EAGAIN)
    empty_ = true;
  else
    break_off(broken(got == 0 ? "its process ended" : std::strerror(errno)));
  return false;
}

// What still comes after this side's goodbye; the peer's end of stream is the end.
void TcpLink::discard_some() {
  std::array<std::byte, 16 << 10> ignored;
  for (size_t sum = 0; sum < kTurnBytes;) {
    const ssize_t got = recv(socket_.get(), ignored.data(), ignored.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return cut();
    sum += static_cast<size_t>(got);
  }
  read_soon();
}

void TcpLink::take(FrameReader::Whole whole) {
  const FrameHeader header = whole.header;
  std::vector<std::span<const std::byte>> fragments;
  if (header.payload_bytes > 0) fragments = {{whole.payload(), header.payload_bytes}};
  deliver(header, std::move(fragments), std::move(whole));
}

// The kernel of a host that lives answers every ping, whatever its processes do.
bool TcpLink::shows_life() const {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (!holding_ || getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
    return false;
  return info.tcpi_unacked == 0 || Millis(info.tcpi_last_ack_recv) < Millis(silence_ms());
}

}  // namespace tutti

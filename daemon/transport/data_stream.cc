#include "daemon/transport/data_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/transport/tcp_counts.h"

namespace tutti {
namespace {

constexpr size_t kPartBytes = size_t{1} << 20;  // Of one read or write.
constexpr int kTurnParts = 8;                   // Before the thread serves other streams.

}  // namespace

// ---- Any thread ----

void DataStream::attach(std::unique_ptr<Wire> wire) {
  {
    const std::lock_guard lock(using_);
    if (closed_ || wire_ != nullptr) return;
    wire_ = std::move(wire);
  }
  io_.post([self = shared_from_this()] {
    {
      const std::lock_guard lock(self->using_);
      if (self->closed_) return;
      const Status watched =
          self->io_.watch(self->wire_->descriptor(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                          [self](uint32_t events) { self->on_ready(events); });
      self->attached_ = watched.ok();
    }
    self->attached_ ? self->serve() : void(self->check(ENOMEM));
  });
}

bool DataStream::awaits_wire() {
  const std::lock_guard lock(using_);
  return !closed_ && wire_ == nullptr;
}

void DataStream::write(std::unique_ptr<PendingFrame> frame) {
  unwritten_ += frame->bytes().size();
  {
    const std::lock_guard lock(mutex_);
    writes_.push_back(std::move(frame));
  }
  wake();
}

void DataStream::read(std::shared_ptr<Read> into) {
  {
    const std::lock_guard lock(mutex_);
    reads_.push_back(std::move(into));
  }
  wake();
}

void DataStream::wake() {
  if (!attached_ || woken_.exchange(true)) return;
  io_.post([self = shared_from_this()] {
    self->woken_ = false;
    self->serve();
  });
}

void DataStream::close() {
  std::deque<std::shared_ptr<PendingFrame>> unsent;
  std::unique_ptr<Wire> wire;
  {
    const std::lock_guard lock(using_);
    if (std::exchange(closed_, true)) return;
    wire = std::move(wire_);
    const std::lock_guard queues(mutex_);
    unsent.swap(writes_);
    reads_.clear();
  }
  unwritten_ = 0;
  if (wire == nullptr) return;
  io_.post([self = shared_from_this(), wire = std::shared_ptr<Wire>(std::move(wire))] {
    self->io_.unwatch(wire->descriptor());
  });
}

bool DataStream::is_stuck(Millis tick, int ticks) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  const std::lock_guard lock(using_);
  const bool quiet = wire_ != nullptr &&
                     getsockopt(wire_->descriptor(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
                     info.tcpi_unacked != 0 && Millis(info.tcpi_last_ack_recv) >= tick;
  stuck_ticks_ = quiet ? stuck_ticks_ + 1 : 0;
  return stuck_ticks_ >= ticks;
}

ConnectionCounts DataStream::counts() {
  const std::lock_guard lock(using_);
  return wire_ == nullptr ? ConnectionCounts() : counts_of(wire_->descriptor());
}

// ---- The stream's thread ----

void DataStream::on_ready(uint32_t events) {
  if ((events & EPOLLOUT) != 0) write_blocked_ = false;
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) hung_up_ = true;
  serve();
}

void DataStream::serve() {
  for (int turn = 0; turn < kTurnParts && !ended_; ++turn) {
    const bool wrote = write_some();
    const bool got = read_some();
    if (!wrote && !got) return;
  }
  if (!ended_) wake();
}

template <class Item>
Item DataStream::first_of(const std::deque<Item>& queue) {
  const std::lock_guard lock(mutex_);
  return queue.empty() ? nullptr : queue.front();
}

// What it held ends outside of the locks, because a release may take its caller's.
template <class Item>
void DataStream::pop(std::deque<Item>& queue) {
  Item first;
  {
    const std::lock_guard lock(mutex_);
    if (queue.empty()) return;  // It was closed meanwhile.
    first = std::move(queue.front());
    queue.pop_front();
  }
  first.reset();
  events_.moved();
}

// Writes once. Returns true if there may be more to write now.
bool DataStream::write_some() {
  if (write_blocked_) return false;
  ssize_t wrote = 0;
  bool whole = false;
  {
    const std::lock_guard lock(using_);
    if (closed_) return false;
    const std::shared_ptr<PendingFrame> frame = first_of(writes_);
    if (frame == nullptr && !wire_->has_unsent()) return false;
    wrote = write_part(frame == nullptr ? std::span<const std::byte>() : frame->bytes());
    if (wrote > 0) unwritten_ -= static_cast<size_t>(wrote);
    whole = frame != nullptr && written_ == frame->bytes().size();
  }
  if (wrote < 0 && errno == EAGAIN) write_blocked_ = true;
  if (wrote < 0) return errno == EINTR || check(errno);
  if (whole) {
    written_ = 0;
    pop(writes_);
  }
  return true;
}

ssize_t DataStream::write_part(std::span<const std::byte> payload) {
  const std::span<const std::byte> left = payload.subspan(written_);
  // The iovec is mutable, but write() only reads from it.
  const iovec part{const_cast<std::byte*>(left.data()), std::min(left.size(), kPartBytes)};
  const ssize_t wrote = wire_->write(std::span(&part, left.empty() ? 0 : 1));
  if (wrote > 0) written_ += static_cast<size_t>(wrote);
  return wrote;
}

// Reads once. Returns true if there may be more to read now.
bool DataStream::read_some() {
  ssize_t got = 0;
  const std::shared_ptr<Read> into = first_of(reads_);
  if (into == nullptr) return hung_up_ && meet_end();
  {
    const std::lock_guard lock(using_);
    if (closed_) return false;
    const size_t bytes = std::min(into->payload.missing(), kPartBytes);
    got = into->payload.receive([&](std::byte* to) {
      const iovec part{to, bytes};
      return wire_->read(std::span(&part, 1));
    });
    if (got > 0) into->payload.note_received(static_cast<size_t>(got));
  }
  if (got > 0) received_ = true;
  if (got <= 0) return (got < 0 && errno == EINTR) || check(got == 0 ? 0 : errno);
  if (into->payload.missing() == 0) {
    into->is_whole = true;
    pop(reads_);
  }
  return true;
}

// Nothing is to be read or, perhaps, written, and yet a stream that ended has broken: what was
// written last may be lost. Bytes in the socket whose header is still to come are left to it.
// Returns false.
bool DataStream::meet_end() {
  ssize_t got = 0;
  {
    const std::lock_guard lock(using_);
    if (closed_) return false;
    char next = 0;
    got = recv(wire_->descriptor(), &next, sizeof(next), MSG_PEEK | MSG_DONTWAIT);
  }
  return got <= 0 && check(got == 0 ? 0 : errno);
}

// Ends the stream unless it only has to wait. Returns false.
bool DataStream::check(int error) {
  if (error == EAGAIN || std::exchange(ended_, true)) return false;
  events_.broke(error == 0 ? "its process ended" : std::strerror(error));
  return false;
}

}  // namespace tutti

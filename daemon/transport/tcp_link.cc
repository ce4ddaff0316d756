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

constexpr Millis kShutdownTimeout{600};           // A little more than a link takes at most.
constexpr size_t kPartsMax = 64;                  // Of one write.
constexpr size_t kWriteBytes = size_t{1} << 20;   // Written before anything is read.
constexpr size_t kTurnBytes = size_t{256} << 10;  // Read before the loop serves others.

}  // namespace

void TcpTransportCore::run_until_no_links() {
  const auto all = [this](auto&& task) {
    const LinkSet left = links();
    for (const auto& link : left) task(static_cast<TcpLink&>(*link));
    return !left.empty();
  };
  all([](TcpLink& link) { link.shut_down(); });
  const TimePoint limit = Clock::now() + kShutdownTimeout;
  std::vector<pollfd> sockets;
  while (Clock::now() < limit && all([&](TcpLink& link) {
           sockets.push_back({link.descriptor(), POLLIN, 0});
         })) {
    poll(sockets.data(), sockets.size(), 10);
    sockets.clear();
    all([](TcpLink& link) { link.on_ready(EPOLLIN | EPOLLOUT); });
  }
  all([](TcpLink& link) { link.fail(unavailable("its transport ends")); });
}

TcpLink::TcpLink(std::shared_ptr<TcpTransportCore> transport, std::string peer,
                 std::shared_ptr<LinkHandler> handler)
    : LinkCore(transport, std::move(peer), std::move(handler)),
      pool_(transport->pool),
      reader_(pool_, transport_->limits.frame_bytes_max) {}

Status TcpLink::broken(const std::string& why) const {
  return unavailable("the link to " + peer_ + " broke: " + why);
}

// ---- Beginning and end ----

bool TcpLink::set_dial(std::function<void()> stop_dial) {
  if (state() == State::closed) return false;
  stop_dial_ = std::move(stop_dial);
  start_open_timer("did not accept the link");
  return true;
}

Status TcpLink::watch(uint32_t events) {
  return transport_->loop.watch(wire_->descriptor(), events,
                                [self = std::static_pointer_cast<TcpLink>(shared_from_this())](
                                    uint32_t what) { self->on_ready(what); });
}

bool TcpLink::await_acceptance(std::unique_ptr<Wire> wire) {
  wire_ = std::move(wire);
  return watch(EPOLLRDHUP).ok();
}

void TcpLink::open(std::unique_ptr<Wire> wire, int silence_ms) {
  stop_dial_ = nullptr;
  if (!set_open(silence_ms)) return;
  wire_ = std::move(wire);
  const Status watched = watch(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  if (!watched.ok()) fail(watched);
}

void TcpLink::welcome(const std::string& answer) {
  if (!write_at_once(*wire_, answer)) return fail(broken("it takes no answer"));
  open(std::move(wire_), silence_ms());
}

void TcpLink::refuse(const Status& why) {
  if (wire_ != nullptr) (void)write_at_once(*wire_, write_refusal(why));
  close_wire();
}

void TcpLink::close_wire() {
  if (const auto stop_dial = std::exchange(stop_dial_, nullptr)) stop_dial();
  if (wire_ != nullptr) transport_->loop.unwatch(wire_->descriptor());
  wire_.reset();
  std::exchange(writing_, {}).clear();
  on_wire_closed(broken("it was closed"));
}

void TcpLink::on_ready(uint32_t events) {
  hung_up_ = hung_up_ || (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  if (!is_open()) return hung_up_ ? fail(broken("its dialler hung up")) : void();
  if ((events & EPOLLOUT) != 0) {
    write_blocked_ = false;
    if (wire_ != nullptr) write_some();
  }
  drained_ = false;
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
  if (wire_ != nullptr && is_open()) write_some();
  if (is_shutting_down()) post_read();
}

// Takes from the queue as much as one write may carry. Returns false if there is nothing to write.
bool TcpLink::refill() {
  const std::lock_guard lock(mutex_);
  while (unwritten_ < kWriteBytes && writing_.size() < kPartsMax / 2) {
    std::unique_ptr<PendingFrame> next = next_frame_locked();
    if (!next) break;
    unwritten_ += next->size();
    writing_.push_back(std::move(next));
  }
  return !writing_.empty();
}

void TcpLink::write_some() {
  size_t sum = 0;
  while (!write_blocked_ && (refill() || wire_->has_unsent())) {
    if (sum >= kWriteBytes) {
      const std::lock_guard lock(mutex_);
      return wake_writer_locked();
    }
    const ssize_t wrote = write_once();
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) {
      write_blocked_ = true;
    } else if (wrote < 0) {
      return on_write_error(errno);
    } else {
      sum += static_cast<size_t>(wrote);
      on_written(static_cast<size_t>(wrote));
    }
  }
  const bool all_sent = writing_.empty() && wire_ != nullptr && !wire_->has_unsent();
  if (is_shutting_down() && all_sent) shutdown(wire_->descriptor(), SHUT_WR);
}

// The peer may have said why: what it sent is read before the link fails.
void TcpLink::on_write_error(int error) {
  write_blocked_ = true;
  if (reading_paused_) return fail(broken(std::strerror(error)));
  drained_ = false;
  post_read();
}

// Writes the headers and payloads of several frames in one call, without copying them.
ssize_t TcpLink::write_once() {
  std::array<iovec, kPartsMax> parts;
  size_t count = 0;
  size_t sum = 0;
  size_t skip = written_;
  const auto add = [&](const void* data, size_t bytes) {
    const size_t skipped = std::min(skip, bytes);
    skip -= skipped;
    const size_t left = std::min(bytes - skipped, kWriteBytes - sum);
    if (left == 0) return;
    // The iovec is mutable, but write() only reads from it.
    parts[count++] = {const_cast<char*>(static_cast<const char*>(data)) + skipped, left};
    sum += left;
  };
  for (const auto& frame : writing_) {
    if (count + 2 > parts.size() || sum == kWriteBytes) break;
    add(&frame->header, sizeof(frame->header));
    add(frame->bytes().data(), frame->bytes().size());
  }
  return wire_->write(std::span(parts).first(count));
}

void TcpLink::on_written(size_t bytes) {
  unwritten_ -= bytes;
  written_ += bytes;
  while (!writing_.empty() && written_ >= writing_.front()->size()) {
    written_ -= writing_.front()->size();
    const std::unique_ptr<PendingFrame> whole = std::move(writing_.front());
    writing_.pop_front();  // Before the frame is released: its `released` may change writing_.
  }
}

// ---- Reading ----

void TcpLink::post_read() {
  if (std::exchange(read_posted_, true)) return;
  post([this, self = shared_from_this()] {
    read_posted_ = false;
    read_some();
  });
}

void TcpLink::read_some() {
  size_t sum = 0;
  while (wire_ != nullptr && is_open()) {
    if (is_shutting_down()) return discard_some();
    reading_paused_ = pause_reading_if_full();
    if (reading_paused_) return;
    Result<std::optional<Frame>> next = reader_.next(handler());
    if (!next.ok()) return close_on_bad_frame(next.status());
    if (!next->has_value()) {
      if (!fill()) return;
      continue;
    }
    sum += sizeof(FrameHeader) + (*next)->header.payload_bytes;
    deliver(std::move(**next));
    if (sum >= kTurnBytes) return post_read();
  }
}

// Reads once. Returns true if there may be something to parse or to read now.
bool TcpLink::fill() {
  if (drained_) return false;
  const ssize_t got = reader_.fill(*wire_);
  if (got > 0) {
    note_received();
    // After a hang-up the end of the stream follows the last byte.
    drained_ = wire_->is_drained() && !hung_up_;
    return true;
  }
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && errno == EAGAIN)
    drained_ = true;
  else
    fail(broken(got == 0 ? "its process ended" : std::strerror(errno)));
  return false;
}

// Discards what arrives after this side's goodbye, until the peer ends its stream.
void TcpLink::discard_some() {
  std::array<std::byte, 16 << 10> ignored;
  for (size_t sum = 0; sum < kTurnBytes;) {
    const ssize_t got = wire_->read(std::array{iovec{ignored.data(), ignored.size()}});
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return close_wire();
    sum += static_cast<size_t>(got);
  }
  post_read();
}

// The kernel of a live host acknowledges every ping, whatever its processes do.
bool TcpLink::peer_is_alive() const {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (!reading_paused_ || getsockopt(descriptor(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
    return false;
  return info.tcpi_unacked == 0 || Millis(info.tcpi_last_ack_recv) < Millis(silence_ms());
}

}  // namespace tutti

// A TCP link's reading, and what it makes of silence.
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/transport/tcp_link.h"
#include "proto/handshake.h"

namespace tutti {
namespace {

constexpr size_t kTurnBytes = 256 << 10;  // Read before the loop turns to others.
constexpr size_t kKeepingBytes = 512;     // What a kept frame takes beside its payload, at most.

}  // namespace

// What keeps a delivered payload.
struct TcpLink::Held {
  Held(FrameReader::Whole frame, std::weak_ptr<TcpLink> keeper, size_t cost)
      : whole(std::move(frame)), link(std::move(keeper)), bytes(cost) {}
  ~Held() {
    whole.slab.reset();
    if (const auto keeper = link.lock()) keeper->dropped(bytes);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  FrameReader::Whole whole;
  const std::weak_ptr<TcpLink> link;
  const size_t bytes;
};

// ---- Reading ----

void TcpLink::ready(uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    blocked_ = false;
    if (socket_.valid()) write_some();
  }
  hung_up_ = hung_up_ || (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  empty_ = false;
  read_some();
}

void TcpLink::read_soon() {
  if (std::exchange(read_posted_, true)) return;
  hub_->loop.post([self = shared_from_this()] {
    self->read_posted_ = false;
    self->read_some();
  });
}

void TcpLink::read_some() {
  size_t sum = 0;
  while (socket_.valid()) {
    if (winding_up_) return discard_some();
    if (holds_back()) return;
    Result<std::optional<FrameReader::Whole>> next = reader_.next(handler_.get());
    if (!next.ok()) {
      const Status& bad = next.status();
      return end({bad.code(), "from " + peer_ + ": " + bad.message()}, unavailable(bad.message()));
    }
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
    heard_ = true;
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
    if (got <= 0) return finish();
    sum += static_cast<size_t>(got);
  }
  read_soon();
}

bool TcpLink::holds_back() {
  if (kept_bytes_ <= hub_->limits.queue_bytes_max) return false;
  paused_ = true;
  // What was dropped in between found nothing to resume.
  return kept_bytes_ > hub_->limits.queue_bytes_max || !paused_.exchange(false);
}

void TcpLink::dropped(size_t bytes) {
  kept_bytes_ -= bytes;
  if (kept_bytes_ > hub_->limits.queue_bytes_max || !paused_.exchange(false)) return;
  hub_->loop.post([self = shared_from_this()] { self->read_some(); });
}

void TcpLink::take(FrameReader::Whole whole) {
  const FrameHeader& header = whole.header;
  if (header.kind == FrameKind::ping) return;
  if (header.kind == FrameKind::goodbye) {
    const size_t bytes = std::min<size_t>(header.payload_bytes, kLinkTextBytesMax);
    const auto* text = reinterpret_cast<const char*>(whole.payload());
    return break_off(unavailable(std::string(text, bytes)));
  }
  if (state() != State::open) return;
  Frame frame{header, {}};
  const size_t bytes = kKeepingBytes + header.payload_bytes;
  if (header.payload_bytes > 0) frame.payload.fragments = {{whole.payload(), header.payload_bytes}};
  kept_bytes_ += bytes;
  frame.payload.owner = std::make_shared<Held>(std::move(whole), weak_from_this(), bytes);
  const std::shared_ptr<LinkHandler> handler = handler_;
  handler->on_frame(std::move(frame));
}

// ---- Silence ----

void TcpLink::tick() {
  timer_ = hub_->loop.at(Clock::now() + tick_, [self = shared_from_this()] { self->tick(); });
  if (!std::exchange(spoke_, false) && writing_.empty()) {
    add_own(FrameKind::ping, {});
    write_some();
  }
  const bool heard = std::exchange(heard_, false) || (paused_ && acknowledged_lately());
  quiet_ticks_ = heard ? 0 : quiet_ticks_ + 1;
  if (quiet_ticks_ < kSilentTicks - 1) return;  // And up to one more before the first.
  break_off(unavailable(peer_ + " has not answered for " +
                        std::to_string(kSilentTicks * tick_.count()) + " ms"));
}

// The kernel of a host that lives answers every ping, whatever its processes do.
bool TcpLink::acknowledged_lately() const {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  return info.tcpi_unacked == 0 || Millis(info.tcpi_last_ack_recv) < kSilentTicks * tick_;
}

}  // namespace tutti

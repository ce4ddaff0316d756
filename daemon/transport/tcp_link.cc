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

#include "daemon/base/threads.h"
#include "daemon/transport/handshake.h"
#include "daemon/transport/tcp_counts.h"

namespace tutti {
namespace {

constexpr Millis kShutdownTimeout{600};           // A little more than a link takes at most.
constexpr size_t kPartsMax = 64;                  // Of one write.
constexpr size_t kWriteBytes = size_t{1} << 20;   // Written before anything is read.
constexpr size_t kTurnBytes = size_t{256} << 10;  // Read before the loop serves others.
// Given to a stream ahead of its socket. More waits in the link's queue, which a close drops.
constexpr size_t kStreamAheadBytes = size_t{2} << 20;

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

void TcpLink::open(std::unique_ptr<Wire> wire, const LinkTerms& terms) {
  stop_dial_ = nullptr;
  if (!set_open(terms.silence_ms)) return;
  wire_ = std::move(wire);
  acknowledge_at_once();
  silence_ = Millis(terms.silence_ms);
  for (size_t stream = 1; stream <= static_cast<size_t>(terms.streams); ++stream)
    streams_.push_back(std::make_shared<DataStream>(
        static_cast<TcpTransportCore&>(*transport_).io(stream), events_of(stream)));
  const Status watched = watch(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  if (!watched.ok()) fail(watched);
}

void TcpLink::welcome(const std::string& answer, const LinkTerms& terms) {
  if (!write_at_once(*wire_, answer)) return fail(broken("it takes no answer"));
  token_ = terms.token;
  open(std::move(wire_), terms);
}

void TcpLink::refuse(const Status& why) {
  if (wire_ != nullptr) (void)write_at_once(*wire_, write_refusal(why));
  close_wire();
}

void TcpLink::close_wire() {
  if (const auto stop_dial = std::exchange(stop_dial_, nullptr)) stop_dial();
  if (wire_ != nullptr) transport_->loop.unwatch(wire_->descriptor());
  wire_.reset();
  for (const auto& stop : std::exchange(stop_dials_, {})) stop();
  for (const auto& stream : streams_) stream->close();
  std::exchange(writing_, {}).clear();
  std::exchange(arriving_, {}).clear();
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
    const size_t stream = least_loaded();
    if (stream != 0 && streams_[stream - 1]->unwritten() >= kStreamAheadBytes) break;
    std::unique_ptr<PendingFrame> next = next_frame_locked();
    if (!next) break;
    writing_.push_back(divert(std::move(next)));
    unwritten_ += writing_.back().size();
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
    add(&frame.header, sizeof(frame.header));
    add(frame.payload().data(), frame.payload().size());
  }
  return wire_->write(std::span(parts).first(count));
}

void TcpLink::on_written(size_t bytes) {
  unwritten_ -= bytes;
  written_ += bytes;
  while (!writing_.empty() && written_ >= writing_.front().size()) {
    written_ -= writing_.front().size();
    const Writing whole = std::move(writing_.front());
    writing_.pop_front();  // Before the frame is released: its `released` may change writing_.
    if (whole.header.kind == FrameKind::ping) acknowledge_at_once();
  }
}

// A side that sends now and then is taken for one that answers, and its kernel holds back the last
// acknowledgement for 40 ms. The peer would count as much time for a frame.
void TcpLink::acknowledge_at_once() const {
  const int on = 1;
  (void)setsockopt(descriptor(), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof(on));
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
    if (std::optional<Frame> arrived = next_arrived()) {
      sum += arrived->header.payload_bytes;
      deliver(*std::move(arrived));
    } else {
      if (has_goodbye() || holds_enough()) return end_by_broken_stream();
      Result<std::optional<Frame>> next = reader_.next(handler());
      if (!next.ok()) return close_on_bad_frame(next.status());
      if (!next->has_value()) {
        if (!fill()) return end_by_broken_stream();
        continue;
      }
      sum += sizeof(FrameHeader) + (*next)->payload.bytes();
      if (Status good = take(std::move(**next)); !good.ok()) return close_on_bad_frame(good);
    }
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
  bool received = false;
  for (const auto& stream : streams_) received = stream->take_received() || received;
  if (received) return true;
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (!reading_paused_ || getsockopt(descriptor(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
    return false;
  return info.tcpi_unacked == 0 || Millis(info.tcpi_last_ack_recv) < silence_;
}

std::vector<ConnectionCounts> TcpLink::connections() const {
  if (wire_ == nullptr || !is_open()) return {};
  std::vector<ConnectionCounts> all = {counts_of(descriptor())};
  for (const auto& stream : streams_) all.push_back(stream->counts());
  return all;
}

// ---- Data streams ----

Loop& TcpTransportCore::io(size_t stream) {
  while (io_threads.size() < stream) io_threads.push_back(std::make_unique<LoopThread>());
  return io_threads[stream - 1]->loop;
}

std::shared_ptr<TcpLink> TcpTransportCore::link_of(const LinkProof& token, size_t stream) {
  for (const auto& each : links())
    if (auto link = std::static_pointer_cast<TcpLink>(each); link->takes_stream(token, stream))
      return link;
  return nullptr;
}

// A stream does not keep its link alive.
DataStream::Events TcpLink::events_of(size_t stream) {
  const auto weak = weak_from_this();
  const auto with_link = [weak](auto call) {
    if (const auto link = std::static_pointer_cast<TcpLink>(weak.lock())) call(*link);
  };
  return {[with_link] { with_link([](TcpLink& link) { link.post_moved(); }); },
          [with_link, stream](const std::string& why) {
            with_link([&](TcpLink& link) {
              link.post([self = link.shared_from_this(), &link, stream, why] {
                link.broken_stream_ = why + " (data stream " + std::to_string(stream) + ")";
                link.drained_ = false;
                link.read_some();
              });
            });
          }};
}

bool TcpLink::takes_stream(const LinkProof& token, size_t stream) const {
  return wire_ != nullptr && token_ && equal_proofs(*token_, token) && stream > 0 &&
         stream <= streams_.size() && streams_[stream - 1]->awaits_wire();
}

void TcpLink::attach(size_t stream, std::unique_ptr<Wire> wire) {
  if (is_open() && wire_ != nullptr && stream > 0 && stream <= streams_.size())
    streams_[stream - 1]->attach(std::move(wire));
}

// Any thread.
void TcpLink::post_moved() {
  if (moved_posted_.exchange(true)) return;
  post([this, self = shared_from_this()] {
    moved_posted_ = false;
    if (wire_ != nullptr) write_some();
    read_some();
  });
}

// A goodbye is the last frame; the end of the connection behind it must not overtake it.
bool TcpLink::has_goodbye() const {
  return !arriving_.empty() && arriving_.back().frame.header.kind == FrameKind::goodbye;
}

// Nothing more can be read now. If a stream broke, what waits for it never comes; a goodbye says
// why.
void TcpLink::end_by_broken_stream() {
  if (broken_stream_.empty() || wire_ == nullptr) return;
  if (has_goodbye()) return deliver(std::move(arriving_.back().frame));
  fail(broken(broken_stream_));
}

bool TcpLink::is_stuck() {
  return std::ranges::any_of(streams_, [&](const auto& stream) {
    return stream->is_stuck(silence_ / kSilentTicksMax, kSilentTicksMax);
  });
}

// The number of the open stream with least to write; 0: none is open yet.
size_t TcpLink::least_loaded() const {
  size_t least = 0;
  for (size_t number = 1; number <= streams_.size(); ++number) {
    const DataStream& stream = *streams_[number - 1];
    if (stream.is_attached() &&
        (least == 0 || stream.unwritten() < streams_[least - 1]->unwritten()))
      least = number;
  }
  return least;
}

// Gives the payload of a large data frame to a stream. The first slice of an operation stays: if it
// is the only one, nothing goes beside it, and the other thread's waking is lost.
TcpLink::Writing TcpLink::divert(std::unique_ptr<PendingFrame> next) {
  FrameHeader header = next->header;
  const bool large = header.kind == FrameKind::data && header.slice > 0 &&
                     next->bytes().size() >= kStreamedBytesMin;
  const size_t stream = large ? least_loaded() : 0;
  if (stream == 0) return {header, std::move(next)};
  header.stream = static_cast<uint8_t>(stream);
  streams_[stream - 1]->write(std::move(next));
  return {header, nullptr};
}

// Delivers the frame, or keeps it until it is whole and those before it are delivered.
Status TcpLink::take(Frame frame) {
  const FrameHeader& header = frame.header;
  std::shared_ptr<DataStream::Read> read;
  if (header.stream != 0) {
    if (header.stream > streams_.size() || header.kind != FrameKind::data ||
        header.payload_bytes == 0)
      return invalid_argument("a frame by data stream " + std::to_string(header.stream) +
                              ", which this link does not have or which carries no such frame");
    read = std::make_shared<DataStream::Read>(
        IncomingPayload(pool_, header.payload_bytes, recv_buffer_of(handler(), header)));
    streams_[header.stream - 1]->read(read);
  }
  if (read == nullptr && arriving_.empty()) {
    deliver(std::move(frame));
    return {};
  }
  arriving_bytes_ += kKeptFrameBytes + header.payload_bytes;
  arriving_.push_back({std::move(frame), std::move(read)});
  return {};
}

std::optional<Frame> TcpLink::next_arrived() {
  if (arriving_.empty()) return std::nullopt;
  Arriving& first = arriving_.front();
  if (first.read != nullptr && !first.read->is_whole) return std::nullopt;
  Frame frame = std::move(first.frame);
  if (first.read != nullptr) frame.payload = first.read->payload.finish();
  arriving_bytes_ -= kKeptFrameBytes + frame.header.payload_bytes;
  arriving_.pop_front();
  return frame;
}

// Whether nothing more may be read before a payload that is under way is whole. After a hang-up
// all is read, because that payload may never come and the end is behind what is left.
bool TcpLink::holds_enough() const {
  return !hung_up_ && arriving_bytes_ > transport_->limits.queue_bytes_max;
}

}  // namespace tutti

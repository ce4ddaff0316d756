#include "daemon/transport/frame_reader.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>

namespace tutti {

FrameReader::~FrameReader() = default;

ssize_t FrameReader::fill(int fd) {
  std::memmove(ahead_.data(), ahead_.data() + ahead_begin_, ahead());
  ahead_end_ = ahead();
  ahead_begin_ = 0;
  const size_t missing = coming_ ? coming_->header.payload_bytes - filled_ : 0;
  std::array<iovec, 2> parts{};
  if (missing > 0) parts[0] = {room() + filled_, missing};
  parts[1] = {ahead_.data() + ahead_end_, ahead_.size() - ahead_end_};
  msghdr message{};
  message.msg_iov = missing > 0 ? parts.data() : parts.data() + 1;
  message.msg_iovlen = missing > 0 ? 2 : 1;
  const ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT);
  if (got <= 0) return got;
  const auto bytes = static_cast<size_t>(got);
  short_ = bytes < missing + parts[1].iov_len;
  const size_t direct = std::min(bytes, missing);
  filled_ += direct;
  ahead_end_ += bytes - direct;
  return got;
}

void FrameReader::take_ahead(std::byte* to, size_t bytes) {
  std::memcpy(to, ahead_.data() + ahead_begin_, bytes);
  ahead_begin_ += bytes;
}

// Where the payload under way lies from its first byte; a slab where its recv_buffer was taken
// back.
std::byte* FrameReader::room() {
  if (coming_->payload() == nullptr)
    coming_->slab = std::make_unique<Slab>(pool_, coming_->header.payload_bytes);
  return coming_->payload();
}

Status FrameReader::begin(LinkHandler* handler) {
  FrameHeader header;
  take_ahead(reinterpret_cast<std::byte*>(&header), sizeof(header));
  if (Status good = checker_.check(header, header.payload_bytes); !good.ok()) return good;
  coming_.emplace(Whole{header, nullptr, nullptr});
  filled_ = 0;
  const bool placed = header.kind == FrameKind::data && header.payload_bytes >= kPlacedBytes;
  if (placed && handler != nullptr) coming_->recv_buffer = handler->recv_buffer_for(header);
  return {};
}

Result<std::optional<FrameReader::Whole>> FrameReader::next(LinkHandler* handler) {
  if (!coming_) {
    if (ahead() < sizeof(FrameHeader)) return std::optional<Whole>();
    if (Status begun = begin(handler); !begun.ok()) return begun;
  }
  const size_t missing = coming_->header.payload_bytes - filled_;
  if (missing > 0) {
    const size_t here = std::min(missing, ahead());
    take_ahead(room() + filled_, here);
    filled_ += here;
    if (here < missing) return std::optional<Whole>();
  }
  // Its recv_buffer may have been taken back since its last byte.
  if (coming_->header.payload_bytes > 0) (void)room();
  return std::exchange(coming_, std::nullopt);
}

}  // namespace tutti

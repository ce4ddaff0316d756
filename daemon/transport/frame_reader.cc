#include "daemon/transport/frame_reader.h"

#include <algorithm>
#include <cstring>

namespace tutti {

ssize_t FrameReader::fill(Wire& wire) {
  std::memmove(ahead_.data(), ahead_.data() + ahead_begin_, unparsed());
  ahead_end_ = unparsed();
  ahead_begin_ = 0;
  const size_t missing = incoming_ ? incoming_->header.payload_bytes - incoming_->received : 0;
  std::array<iovec, 2> parts{};
  if (missing > 0) parts[0] = {payload() + incoming_->received, missing};
  parts[1] = {ahead_.data() + ahead_end_, ahead_.size() - ahead_end_};
  const ssize_t got = wire.read(std::span(parts).subspan(missing > 0 ? 0 : 1));
  if (got <= 0) return got;
  const auto bytes = static_cast<size_t>(got);
  const size_t direct = std::min(bytes, missing);
  if (incoming_) incoming_->received += direct;
  ahead_end_ += bytes - direct;
  return got;
}

void FrameReader::consume(std::byte* to, size_t bytes) {
  std::memcpy(to, ahead_.data() + ahead_begin_, bytes);
  ahead_begin_ += bytes;
}

// The memory of the incoming payload: the recv_buffer, or a pooled buffer once that was withdrawn.
std::byte* FrameReader::payload() {
  if (incoming_->buffer == nullptr) {
    const RecvBuffer* offered = incoming_->recv_buffer.get();
    if (offered != nullptr && offered->at != nullptr) return offered->at;
    incoming_->buffer = pool_->take(incoming_->header.payload_bytes);
  }
  return incoming_->buffer.get();
}

Status FrameReader::parse_header(LinkHandler* handler) {
  FrameHeader header;
  consume(reinterpret_cast<std::byte*>(&header), sizeof(header));
  if (Status good = checker_.check(header, header.payload_bytes); !good.ok()) return good;
  incoming_ = Incoming{header, nullptr, nullptr, 0};
  const bool placed = header.kind == FrameKind::data && header.payload_bytes >= kPlacedBytesMin;
  if (placed && handler != nullptr) incoming_->recv_buffer = handler->recv_buffer_for(header);
  return {};
}

Result<std::optional<Frame>> FrameReader::next(LinkHandler* handler) {
  if (!incoming_) {
    if (unparsed() < sizeof(FrameHeader)) return std::optional<Frame>();
    if (Status parsed = parse_header(handler); !parsed.ok()) return parsed;
  }
  const size_t missing = incoming_->header.payload_bytes - incoming_->received;
  if (missing > 0) {
    const size_t here = std::min(missing, unparsed());
    consume(payload() + incoming_->received, here);
    incoming_->received += here;
    if (here < missing) return std::optional<Frame>();
  }
  return std::optional(finish());
}

Frame FrameReader::finish() {
  Frame frame{incoming_->header, {}};
  if (const size_t bytes = frame.header.payload_bytes; bytes > 0) {
    // The recv_buffer may have been withdrawn since the last byte.
    frame.payload.fragments = {{payload(), bytes}};
    if (incoming_->buffer != nullptr)
      frame.payload.owner = std::move(incoming_->buffer);
    else
      frame.payload.owner = std::move(incoming_->recv_buffer);
  }
  incoming_.reset();
  return frame;
}

}  // namespace tutti

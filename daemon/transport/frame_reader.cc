#include "daemon/transport/frame_reader.h"

#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

constexpr size_t kPlacedBytesMin = 4 << 10;  // Smaller payloads are cheap to copy.

}  // namespace

std::shared_ptr<RecvBuffer> recv_buffer_of(LinkHandler* handler, const FrameHeader& header) {
  const bool placed = header.kind == FrameKind::data && header.payload_bytes >= kPlacedBytesMin;
  return placed && handler != nullptr ? handler->recv_buffer_for(header) : nullptr;
}

ssize_t FrameReader::fill(Wire& wire) {
  std::memmove(ahead_.data(), ahead_.data() + ahead_begin_, unparsed());
  ahead_end_ = unparsed();
  ahead_begin_ = 0;
  const iovec ahead{ahead_.data() + ahead_end_, ahead_.size() - ahead_end_};
  const size_t missing = incoming_ ? incoming_->payload.missing() : 0;
  const ssize_t got =
      missing == 0 ? wire.read({&ahead, 1}) : incoming_->payload.receive([&](std::byte* to) {
        return wire.read(std::array{iovec{to, missing}, ahead});
      });
  if (got <= 0) return got;
  const auto bytes = static_cast<size_t>(got);
  const size_t direct = std::min(bytes, missing);
  if (incoming_) incoming_->payload.note_received(direct);
  ahead_end_ += bytes - direct;
  return got;
}

void FrameReader::consume(std::byte* to, size_t bytes) {
  std::memcpy(to, ahead_.data() + ahead_begin_, bytes);
  ahead_begin_ += bytes;
}

Status FrameReader::parse_header(LinkHandler* handler) {
  FrameHeader header;
  consume(reinterpret_cast<std::byte*>(&header), sizeof(header));
  if (Status good = checker_.check(header, header.payload_bytes); !good.ok()) return good;
  const bool here = header.stream == 0;
  incoming_ = Incoming{header, IncomingPayload(pool_, here ? header.payload_bytes : 0,
                                               here ? recv_buffer_of(handler, header) : nullptr)};
  return {};
}

Result<std::optional<Frame>> FrameReader::next(LinkHandler* handler) {
  if (!incoming_) {
    if (unparsed() < sizeof(FrameHeader)) return std::optional<Frame>();
    if (Status parsed = parse_header(handler); !parsed.ok()) return parsed;
  }
  IncomingPayload& payload = incoming_->payload;
  if (const size_t missing = payload.missing(); missing > 0) {
    const size_t here = std::min(missing, unparsed());
    payload.receive([&](std::byte* to) { consume(to, here); });
    payload.note_received(here);
    if (here < missing) return std::optional<Frame>();
  }
  Frame frame{incoming_->header, payload.finish()};
  incoming_.reset();
  return std::optional(std::move(frame));
}

}  // namespace tutti

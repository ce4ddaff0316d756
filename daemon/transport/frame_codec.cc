#include "daemon/transport/frame_codec.h"

#include <bit>

namespace tutti {
namespace {

static_assert(std::endian::native == std::endian::little, "frame headers travel as they lie");

Status too_large(size_t bytes, size_t max) {
  return invalid_argument("a frame of " + std::to_string(bytes) +
                          " payload bytes is above frame_bytes_max = " + std::to_string(max));
}

bool is_known(FrameKind kind) { return kind >= FrameKind::data && kind <= FrameKind::ping; }

Status check_identity(const FrameHeader& header) {
  if (header.magic != kFrameMagic) return invalid_argument("not a Tutti frame: wrong magic number");
  if (header.version != kFrameVersion)
    return invalid_argument("frame of version " + std::to_string(header.version) +
                            "; this worker speaks " + std::to_string(kFrameVersion) +
                            ": run the same release on every host");
  if (!is_known(header.kind))
    return invalid_argument("frame of unknown kind " +
                            std::to_string(static_cast<int>(header.kind)));
  return {};
}

}  // namespace

Status check_outgoing(const FrameHeader& header, size_t payload_bytes, size_t frame_bytes_max) {
  if (header.kind != FrameKind::data && header.kind != FrameKind::control)
    return invalid_argument("only data and control frames can be sent");
  if (payload_bytes > frame_bytes_max) return too_large(payload_bytes, frame_bytes_max);
  return {};
}

FrameHeader FrameSequencer::complete(FrameHeader header, size_t payload_bytes) {
  header.magic = kFrameMagic;
  header.version = kFrameVersion;
  header.link_seq = next_seq_++;
  header.payload_bytes = payload_bytes;
  header.stream = 0;
  return header;
}

Status FrameChecker::check(const FrameHeader& header, size_t payload_bytes) {
  if (Status known = check_identity(header); !known.ok()) return known;
  if (payload_bytes > frame_bytes_max_) return too_large(payload_bytes, frame_bytes_max_);
  if (header.payload_bytes > frame_bytes_max_)
    return too_large(header.payload_bytes, frame_bytes_max_);
  if (header.payload_bytes != payload_bytes)
    return data_loss("a frame says " + std::to_string(header.payload_bytes) +
                     " payload bytes and has " + std::to_string(payload_bytes));
  if (header.link_seq != next_seq_)
    return data_loss("frame " + std::to_string(header.link_seq) + " came where frame " +
                     std::to_string(next_seq_) + " was due");
  ++next_seq_;
  return {};
}

}  // namespace tutti

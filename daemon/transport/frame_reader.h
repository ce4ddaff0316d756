// Splits the bytes of a connection into frames. A payload is read straight into its final memory.
// Only bytes that arrived along with its header are copied.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "daemon/transport/frame_codec.h"
#include "daemon/transport/incoming_payload.h"
#include "daemon/transport/transport.h"
#include "daemon/transport/wire.h"

namespace tutti {

// Asks the handler, which may be null, for memory for the payload of a frame that is checked.
std::shared_ptr<RecvBuffer> recv_buffer_of(LinkHandler* handler, const FrameHeader& header);

// Not thread-safe.
class FrameReader {
 public:
  FrameReader(std::shared_ptr<BufferPool> pool, size_t frame_bytes_max)
      : pool_(std::move(pool)), checker_(frame_bytes_max) {}

  // Reads once and returns what Wire::read() did. Call it when next() has no whole frame.
  ssize_t fill(Wire& wire);

  // Returns the next whole frame, or nothing if more must be read. After an error, which is
  // FrameChecker's, the rest of the stream cannot be parsed. `handler` may offer memory for large
  // payloads; it may be null. A frame whose payload comes by a data stream has none here.
  Result<std::optional<Frame>> next(LinkHandler* handler);

 private:
  // A frame whose header is parsed and whose payload may be incomplete.
  struct Incoming {
    FrameHeader header;
    IncomingPayload payload;
  };

  static constexpr size_t kReadAheadBytes = 16 << 10;

  Status parse_header(LinkHandler* handler);
  size_t unparsed() const { return ahead_end_ - ahead_begin_; }
  void consume(std::byte* to, size_t bytes);

  const std::shared_ptr<BufferPool> pool_;
  FrameChecker checker_;
  std::array<std::byte, kReadAheadBytes> ahead_;
  size_t ahead_begin_ = 0;  // The unparsed bytes of ahead_ are [ahead_begin_, ahead_end_).
  size_t ahead_end_ = 0;
  std::optional<Incoming> incoming_;
};

}  // namespace tutti

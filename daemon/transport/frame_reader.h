// Splits the bytes of a connection into frames. A payload is read straight into its final memory:
// the handler's RecvBuffer, or a pooled buffer. Only bytes that arrived along with its header are
// copied.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "daemon/transport/buffer_pool.h"
#include "daemon/transport/frame_codec.h"
#include "daemon/transport/transport.h"
#include "daemon/transport/wire.h"

namespace tutti {

// Not thread-safe.
class FrameReader {
 public:
  FrameReader(std::shared_ptr<BufferPool> pool, size_t frame_bytes_max)
      : pool_(std::move(pool)), checker_(frame_bytes_max) {}

  // Reads once and returns what Wire::read() did. Call it when next() has no whole frame.
  ssize_t fill(Wire& wire);

  // Returns the next whole frame, or nothing if more must be read. After an error, which is
  // FrameChecker's, the rest of the stream cannot be parsed. `handler` may offer memory for large
  // payloads; it may be null.
  Result<std::optional<Frame>> next(LinkHandler* handler);

 private:
  // A frame whose header is parsed and whose payload may be incomplete.
  struct Incoming {
    FrameHeader header;
    std::shared_ptr<RecvBuffer> recv_buffer;  // Null: none was offered.
    BufferPool::Buffer buffer;                // Null while recv_buffer is used.
    size_t received;                          // Bytes of the payload.
  };

  static constexpr size_t kReadAheadBytes = 16 << 10;
  static constexpr size_t kPlacedBytesMin = 4 << 10;  // Smaller payloads are cheap to copy.

  Status parse_header(LinkHandler* handler);
  std::byte* payload();
  size_t unparsed() const { return ahead_end_ - ahead_begin_; }
  void consume(std::byte* to, size_t bytes);
  Frame finish();

  const std::shared_ptr<BufferPool> pool_;
  FrameChecker checker_;
  std::array<std::byte, kReadAheadBytes> ahead_;
  size_t ahead_begin_ = 0;  // The unparsed bytes of ahead_ are [ahead_begin_, ahead_end_).
  size_t ahead_end_ = 0;
  std::optional<Incoming> incoming_;
};

}  // namespace tutti

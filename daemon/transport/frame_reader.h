// Cuts what comes over a socket into frames. A payload is read where it stays: straight into a slab
// of the pool, but for the few bytes that came along with its header.
#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <optional>

#include "daemon/transport/frame_codec.h"
#include "daemon/transport/slab_pool.h"
#include "daemon/transport/transport.h"

namespace tutti {

class FrameReader {
 public:
  FrameReader(std::shared_ptr<SlabPool> pool, size_t frame_bytes_max)
      : pool_(std::move(pool)), checker_(frame_bytes_max) {}
  ~FrameReader();
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;

  // Reads once from a socket that does not block; what recvmsg answers. To be called when next()
  // wants more. A short count says that the socket was empty: see was_short().
  ssize_t fill(int fd);
  bool was_short() const { return short_; }

  // A received frame's memory.
  struct Slab {
    Slab(std::shared_ptr<SlabPool> from, size_t bytes)
        : pool(std::move(from)), data(pool->take(bytes)), bytes(bytes) {}
    ~Slab() { pool->give_back(std::move(data), bytes); }
    Slab(const Slab&) = delete;
    Slab& operator=(const Slab&) = delete;
    const std::shared_ptr<SlabPool> pool;
    SlabPool::Slab data;
    const size_t bytes;
  };
  struct Whole {
    FrameHeader header;
    std::unique_ptr<Slab> slab;               // Null where there is no payload, or it has
    std::shared_ptr<RecvBuffer> recv_buffer;  // landed elsewhere.
    std::byte* payload() const {
      return slab ? slab->data.get() : recv_buffer ? recv_buffer->at : nullptr;
    }
  };
  // The next whole frame; nothing: more must be read. An error as FrameChecker's: nothing more can
  // be understood. `handler` may place large payloads; it may be null.
  Result<std::optional<Whole>> next(LinkHandler* handler);

 private:
  static constexpr size_t kAheadBytes = 16 << 10;
  static constexpr size_t kPlacedBytes = 4 << 10;  // Less is copied in no time.

  Status begin(LinkHandler* handler);
  std::byte* room();
  size_t ahead() const { return ahead_end_ - ahead_begin_; }
  void take_ahead(std::byte* to, size_t bytes);

  const std::shared_ptr<SlabPool> pool_;
  FrameChecker checker_;
  std::array<std::byte, kAheadBytes> ahead_;  // Read, not yet looked at.
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
  std::optional<Whole> coming_;  // Its header is known, its payload is not whole.
  size_t filled_ = 0;            // Of coming_'s payload.
  bool short_ = false;
};

}  // namespace tutti

// Memory for received payloads. Returned buffers are reused, most recent first, because touching
// fresh pages costs ten times as much as reading into warm ones.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti {

// Owned by a shared_ptr. Thread-safe.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // Returns the memory to the pool, which it keeps alive.
  struct Return {
    std::shared_ptr<BufferPool> pool;
    size_t bytes = 0;  // Of the memory, a power of two.
    void operator()(std::byte* data) const;
  };
  using Buffer = std::unique_ptr<std::byte, Return>;

  // Keeps at most this many unused bytes.
  explicit BufferPool(size_t unused_bytes_max) : unused_bytes_max_(unused_bytes_max) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // The buffer has at least `bytes` and at least 64 bytes, and less than twice the greater of the
  // two. It is aligned to its size or to a page, whichever is less.
  Buffer take(size_t bytes);

 private:
  const size_t unused_bytes_max_;
  std::mutex mutex_;
  std::map<size_t, std::vector<std::byte*>> unused_;  // By size. Guarded by mutex_.
  size_t unused_bytes_ = 0;
};

}  // namespace tutti

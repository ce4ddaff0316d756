#include "daemon/transport/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "daemon/base/status.h"

namespace tutti {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kPageBytes = 4096;

}  // namespace

BufferPool::~BufferPool() {
  for (const auto& [size, buffers] : unused_) std::ranges::for_each(buffers, std::free);
}

BufferPool::Buffer BufferPool::take(size_t bytes) {
  Return give_back{shared_from_this(), std::bit_ceil(std::max(bytes, kLineBytes))};
  const size_t size = give_back.bytes;
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::byte*>& unused = unused_[size];
    if (!unused.empty()) {
      Buffer buffer(unused.back(), std::move(give_back));
      unused.pop_back();
      unused_bytes_ -= size;
      return buffer;
    }
  }
  void* fresh = std::aligned_alloc(std::min(size, kPageBytes), size);
  require(fresh != nullptr, "the system has memory for a frame");
  return Buffer(static_cast<std::byte*>(fresh), std::move(give_back));
}

void BufferPool::Return::operator()(std::byte* data) const {
  const std::lock_guard lock(pool->mutex_);
  if (pool->unused_bytes_ + bytes > pool->unused_bytes_max_) return std::free(data);
  pool->unused_bytes_ += bytes;
  pool->unused_[bytes].push_back(data);
}

}  // namespace tutti

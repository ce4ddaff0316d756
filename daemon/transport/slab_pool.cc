#include "daemon/transport/slab_pool.h"

#include <algorithm>
#include <bit>

#include "daemon/base/status.h"

namespace tutti {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kPageBytes = 4096;

size_t slab_bytes(size_t bytes) { return std::bit_ceil(std::max(bytes, kLineBytes)); }

}  // namespace

SlabPool::Slab SlabPool::take(size_t bytes) {
  const size_t size = slab_bytes(bytes);
  {
    const std::lock_guard lock(mutex_);
    std::vector<Slab>& spare = spare_[size];
    if (!spare.empty()) {
      Slab slab = std::move(spare.back());
      spare.pop_back();
      spare_bytes_ -= size;
      return slab;
    }
  }
  Slab slab(static_cast<std::byte*>(std::aligned_alloc(std::min(size, kPageBytes), size)));
  require(slab != nullptr, "the system has memory for a frame");
  return slab;
}

void SlabPool::give_back(Slab slab, size_t bytes) {
  const size_t size = slab_bytes(bytes);
  const std::lock_guard lock(mutex_);
  if (spare_bytes_ + size > spare_bytes_max_) return;
  spare_bytes_ += size;
  spare_[size].push_back(std::move(slab));
}

}  // namespace tutti

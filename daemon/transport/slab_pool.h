// Warm memory for what is received: slabs come back and are used again, the last one first, since
// touching fresh pages costs ten times what reading into them does.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti {

// Any thread.
class SlabPool {
 public:
  struct Free {
    void operator()(std::byte* slab) const { std::free(slab); }
  };
  using Slab = std::unique_ptr<std::byte, Free>;

  // Keeps at most so many bytes that nobody uses.
  explicit SlabPool(size_t spare_bytes_max) : spare_bytes_max_(spare_bytes_max) {}

  // Of at least `bytes` and less than twice as many, or 64; aligned to its size, or to a page. To
  // be given back with the same number.
  Slab take(size_t bytes);
  void give_back(Slab slab, size_t bytes);

 private:
  const size_t spare_bytes_max_;
  std::mutex mutex_;
  std::map<size_t, std::vector<Slab>> spare_;  // By size, a power of two. Guarded by mutex_.
  size_t spare_bytes_ = 0;
};

}  // namespace tutti

// A pool of memory blocks for partial results. Blocks are reused, because the first touch of a page
// costs ten times as much as the reduction that uses it.
#pragma once

#include <bit>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "daemon/device/device.h"

namespace tutti {

class ScratchPool {
 public:
  struct Block {
    std::byte* data = nullptr;
    size_t bytes = 0;  // A power of two.
  };

  // Gives memory of at least so many bytes.
  using Source = std::function<Result<std::unique_ptr<Buffer>>(size_t bytes)>;
  explicit ScratchPool(Source source) : source_(std::move(source)) {}
  explicit ScratchPool(Device& device)
      : ScratchPool([&device](size_t bytes) { return device.allocate(bytes); }) {}

  // At least `bytes`; fails as the source does. Blocks are cut from large slabs, because each
  // device buffer may cost a descriptor. Slabs are freed with the pool: their sum is the peak
  // demand.
  Result<Block> take(size_t bytes) {
    const size_t size = std::bit_ceil(std::max(bytes, kLeastBytes));
    std::vector<std::byte*>& spare = spare_[size];
    if (spare.empty()) {
      if (Status more = cut(size, spare); !more.ok()) return more;
    }
    std::byte* data = spare.back();
    spare.pop_back();
    return Block{data, size};
  }

  void give_back(const Block& block) { spare_[block.bytes].push_back(block.data); }

 private:
  static constexpr size_t kLeastBytes = 4096;
  static constexpr size_t kSlabBytes = size_t{4} << 20;

  Status cut(size_t size, std::vector<std::byte*>& spare) {
    Result<std::unique_ptr<Buffer>> slab = source_(std::max(size, kSlabBytes));
    if (!slab.ok()) return slab.status();
    for (size_t at = 0; at + size <= (*slab)->bytes(); at += size)
      spare.push_back((*slab)->data() + at);
    slabs_.push_back(*std::move(slab));
    return {};
  }

  Source source_;
  std::vector<std::unique_ptr<Buffer>> slabs_;
  std::map<size_t, std::vector<std::byte*>> spare_;  // By size.
};

}  // namespace tutti

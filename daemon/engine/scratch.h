// Warm memory for partial results: blocks come back and are used again, since touching fresh pages
// costs ten times what the work on them does.
#pragma once

#include <bit>
#include <map>
#include <memory>
#include <vector>

#include "daemon/device/device.h"

namespace tutti {

class Scratch {
 public:
  explicit Scratch(Device& device) : device_(device) {}

  Result<std::unique_ptr<Buffer>> take(size_t bytes) {
    const size_t size = std::bit_ceil(std::max(bytes, kLeastBytes));
    std::vector<std::unique_ptr<Buffer>>& spare = spare_[size];
    if (spare.empty()) return device_.allocate(size);
    std::unique_ptr<Buffer> buffer = std::move(spare.back());
    spare.pop_back();
    return buffer;
  }

  void give_back(std::unique_ptr<Buffer> buffer) {
    std::vector<std::unique_ptr<Buffer>>& spare = spare_[buffer->bytes()];
    if (spare.size() < kSpareMost) spare.push_back(std::move(buffer));
  }

 private:
  static constexpr size_t kLeastBytes = 4096;
  static constexpr size_t kSpareMost = 64;  // Of one size; more are freed.

  Device& device_;
  std::map<size_t, std::vector<std::unique_ptr<Buffer>>> spare_;
};

}  // namespace tutti

#include "client/arena.h"

#include <algorithm>
#include <iterator>

namespace tutti::client {
namespace {

constexpr uint64_t kAlignment = 64;

uint64_t rounded(uint64_t bytes) {
  return std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
}

}  // namespace

Arena::Arena(uint64_t offset, uint64_t bytes, uint64_t warm_bytes_max, OnPages discard,
             OnPages populate)
    : warm_bytes_max_(warm_bytes_max),
      discard_(std::move(discard)),
      populate_(std::move(populate)) {
  free_.emplace(offset, Free{bytes / kAlignment * kAlignment, false});
}

std::optional<uint64_t> Arena::allocate(uint64_t bytes) {
  if (bytes > UINT64_MAX - kAlignment) return std::nullopt;
  const uint64_t size = rounded(bytes);
  std::optional<uint64_t> block = take(size, true);
  if (!block) block = take_cold(size);
  if (!block && warm_bytes_ > 0) {
    cool_all();
    block = take_cold(size);
  }
  if (block) {
    used_.emplace(*block, Used{size, 1, false});
    used_bytes_ += size;
  }
  return block;
}

std::optional<uint64_t> Arena::take(uint64_t bytes, bool warm) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [offset, extent] = *it;
    if (extent.warm != warm || extent.bytes < bytes) continue;
    free_.erase(it);
    if (extent.bytes > bytes) free_.emplace(offset + bytes, Free{extent.bytes - bytes, warm});
    if (warm) warm_bytes_ -= bytes;
    return offset;
  }
  return std::nullopt;
}

std::optional<uint64_t> Arena::take_cold(uint64_t bytes) {
  const std::optional<uint64_t> block = take(bytes, false);
  if (block && populate_) populate_(*block, bytes);
  return block;
}

std::optional<uint64_t> Arena::hold(uint64_t offset, uint64_t bytes) {
  auto it = used_.upper_bound(offset);
  if (it == used_.begin()) return std::nullopt;
  --it;
  const uint64_t within = offset - it->first;
  if (within > it->second.bytes || bytes > it->second.bytes - within) return std::nullopt;
  ++it->second.holders;
  return it->first;
}

void Arena::release(uint64_t block) {
  const auto it = used_.find(block);
  if (it == used_.end() || --it->second.holders > 0) return;
  const uint64_t bytes = it->second.bytes;
  used_.erase(it);
  used_bytes_ -= bytes;
  warm_bytes_ += bytes;
  const auto extent = insert_free(block, Free{bytes, true});
  if (warm_bytes_ > warm_bytes_max_) cool(extent);
}

bool Arena::give_back(uint64_t block) {
  const auto it = used_.find(block);
  if (it == used_.end() || it->second.given_back) return false;
  it->second.given_back = true;
  release(block);
  return true;
}

Arena::FreeMap::iterator Arena::insert_free(uint64_t offset, Free extent) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + extent.bytes &&
      next->second.warm == extent.warm) {
    extent.bytes += next->second.bytes;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.bytes == offset && before->second.warm == extent.warm) {
      before->second.bytes += extent.bytes;
      return before;
    }
  }
  return free_.emplace(offset, extent).first;
}

void Arena::cool(FreeMap::iterator extent) {
  const auto [offset, free] = *extent;
  free_.erase(extent);
  warm_bytes_ -= free.bytes;
  discard_(offset, free.bytes);
  insert_free(offset, Free{free.bytes, false});
}

void Arena::cool_all() {
  while (true) {
    const auto it =
        std::ranges::find_if(free_, [](const auto& extent) { return extent.second.warm; });
    if (it == free_.end()) return;
    cool(it);
  }
}

}  // namespace tutti::client

#include "client/rank/arena.h"

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
  free_.emplace(offset, Block{bytes / kAlignment * kAlignment});
}

std::optional<uint64_t> Arena::allocate(uint64_t bytes, bool* cold) {
  if (cold != nullptr) *cold = false;
  if (bytes > UINT64_MAX - kAlignment) return std::nullopt;
  const uint64_t size = rounded(bytes);
  std::optional<uint64_t> block = allocate_from(size, true);
  if (!block) block = allocate_cold(size, cold);
  if (!block && warm_bytes_ > 0) {
    cool_all();
    block = allocate_cold(size, cold);
  }
  if (block) used_.at(*block).requested = bytes;
  return block;
}

std::optional<uint64_t> Arena::allocate_from(uint64_t bytes, bool warm) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    auto& [offset, extent] = *it;
    if (extent.warm != warm || extent.bytes < bytes) continue;
    if (extent.bytes > bytes) free_.emplace(offset + bytes, Block{extent.bytes - bytes, warm});
    extent = {.bytes = bytes, .holders = 1};
    if (warm) warm_bytes_ -= bytes;
    used_bytes_ += bytes;
    return used_.insert(free_.extract(it)).position->first;
  }
  return std::nullopt;
}

std::optional<uint64_t> Arena::allocate_cold(uint64_t bytes, bool* cold) {
  const std::optional<uint64_t> block = allocate_from(bytes, false);
  if (cold != nullptr)
    *cold = block.has_value();
  else if (block && populate_)
    populate_(*block, bytes);
  return block;
}

Arena::Blocks::const_iterator Arena::find_used(uint64_t offset) const {
  const auto behind = used_.upper_bound(offset);
  return behind == used_.begin() ? used_.end() : std::prev(behind);
}

uint64_t Arena::room_at(uint64_t offset) const {
  const auto it = find_used(offset);
  if (it == used_.end() || offset - it->first > it->second.requested) return 0;
  return it->second.requested - (offset - it->first);
}

std::optional<uint64_t> Arena::hold(uint64_t offset, uint64_t bytes) {
  const auto it = find_used(offset);
  if (it == used_.end() || room_at(offset) < bytes) return std::nullopt;
  ++used_.at(it->first).holders;
  return it->first;
}

void Arena::release(uint64_t block) {
  const auto it = used_.find(block);
  if (it == used_.end() || --it->second.holders > 0) return;
  const uint64_t bytes = it->second.bytes;
  used_bytes_ -= bytes;
  warm_bytes_ += bytes;
  Blocks::node_type node = used_.extract(it);
  node.mapped() = {.bytes = bytes, .warm = true};
  const auto extent = insert_free(std::move(node));
  if (warm_bytes_ > warm_bytes_max_) cool(extent);
}

bool Arena::release_first(uint64_t block) {
  const auto it = used_.find(block);
  if (it == used_.end() || it->second.first_released) return false;
  it->second.first_released = true;
  release(block);
  return true;
}

Arena::Blocks::iterator Arena::insert_free(Blocks::node_type node) {
  Block& extent = node.mapped();
  auto next = free_.lower_bound(node.key());
  if (next != free_.end() && next->first == node.key() + extent.bytes &&
      next->second.warm == extent.warm) {
    extent.bytes += next->second.bytes;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.bytes == node.key() && before->second.warm == extent.warm) {
      before->second.bytes += extent.bytes;
      return before;
    }
  }
  return free_.insert(std::move(node)).position;
}

void Arena::cool(Blocks::iterator extent) {
  Blocks::node_type node = free_.extract(extent);
  Block& free = node.mapped();
  warm_bytes_ -= free.bytes;
  discard_(node.key(), free.bytes);
  free.warm = false;
  insert_free(std::move(node));
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

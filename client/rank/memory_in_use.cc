#include "client/rank/memory_in_use.h"

#include <algorithm>
#include <utility>

namespace tutti::client {

// Takes no lock of the operation's, which a thread that calls end() may hold.
bool MemoryUse::has_ended() const {
  return has_started_.load(std::memory_order_acquire) && !lasts_until_end_ && op_has_ended_();
}

std::string MemoryUse::name() const {
  const bool is_numbered = has_started_.load(std::memory_order_acquire);
  return std::string(verb_) + (is_numbered ? " #" + std::to_string(number_) : "");
}

template <class Predicate>
void MemoryUse::drop_ranges(const Predicate& is_dropped) {
  std::erase_if(many_, is_dropped);
  if (few_count_ == 0) return;
  const auto end = few_.begin() + static_cast<ptrdiff_t>(few_count_);
  few_count_ = static_cast<size_t>(std::remove_if(few_.begin(), end, is_dropped) - few_.begin());
}

void MemoryUse::set_ranges(std::span<const MemoryRange> ranges) {
  if (ranges.size() <= few_.size()) {
    std::ranges::copy(ranges, few_.begin());
    few_count_ = ranges.size();
  } else {
    many_.assign(ranges.begin(), ranges.end());
  }
  first_ = UINTPTR_MAX;
  last_ = 0;
  for (const MemoryRange& range : ranges) {
    first_ = std::min(first_, range.begin);
    last_ = std::max(last_, range.end);
  }
}

// A forked child leaves alone what its parent uses.
void MemoryUse::end() {
  if (all_ == nullptr || has_left_ || !all_->fork_guard_.is_own_process()) return;
  const std::lock_guard lock(all_->mutex_);
  if (has_left_.exchange(true)) return;
  (previous_ != nullptr ? previous_->next_ : all_->first_) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

void MemoryUse::abandon() {
  if (all_ == nullptr || !all_->fork_guard_.is_own_process()) return;
  if (!lasts_until_end_.exchange(false)) return;
  const std::lock_guard lock(all_->mutex_);
  drop_ranges([this](const MemoryRange& range) { return !all_->is_shared(range); });
}

Status MemoryInUse::take(std::span<const MemoryRange> ranges, std::string_view verb, bool stays,
                         MemoryUse& use) {
  if (ranges.empty()) return {};
  const std::lock_guard lock(mutex_);
  if (Status s = check(ranges, verb); !s.ok()) return s;
  use.set_ranges(ranges);
  use.verb_ = verb;
  if (!stays) use.drop_ranges([this](const MemoryRange& range) { return !is_shared(range); });
  if (use.ranges().empty()) return {};
  use.all_ = this;
  use.previous_ = nullptr;
  use.next_ = first_;
  if (first_ != nullptr) first_->previous_ = &use;
  first_ = &use;
  return {};
}

Status MemoryInUse::check(std::span<const MemoryRange> ranges, std::string_view verb) const {
  uintptr_t last = 0;
  if (first_ == nullptr) return {};
  for (const MemoryRange& range : ranges) last = std::max(last, range.end);
  for (const MemoryUse* use = first_; use != nullptr; use = use->next_) {
    if (ranges.front().begin >= use->last_ || use->first_ >= last) continue;
    const auto overlap = find_overlap(ranges, use->ranges());
    if (!overlap || use->has_ended()) continue;
    const bool writes = overlap->second.is_written;
    return invalid_argument(std::string(verb) + (overlap->first.is_written ? " writes" : " reads") +
                            " memory that " + use->name() + ", which is under way, " +
                            (writes ? "writes" : "reads") + "; wait for that first");
  }
  return {};
}

}  // namespace tutti::client

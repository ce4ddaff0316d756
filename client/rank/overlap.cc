#include "client/rank/overlap.h"

#include <algorithm>

namespace tutti::client {
namespace {

bool is_before(const MemoryRange& a, const MemoryRange& b) { return a.begin < b.begin; }

// For ranges passed in order, those that reach furthest: only they can matter to the next.
class Passed {
 public:
  void add(const MemoryRange& range) {
    if (any_ == nullptr || range.end > any_->end) any_ = &range;
    if (range.is_written && (written_ == nullptr || range.end > written_->end)) written_ = &range;
  }
  // The one in the way of a range that begins at none of them or later; null: none is.
  const MemoryRange* in_the_way_of(const MemoryRange& range) const {
    const MemoryRange* furthest = range.is_written ? any_ : written_;
    return furthest != nullptr && furthest->end > range.begin ? furthest : nullptr;
  }

 private:
  const MemoryRange* any_ = nullptr;
  const MemoryRange* written_ = nullptr;
};

}  // namespace

void sort_ranges(std::vector<MemoryRange>& ranges) {
  if (!std::ranges::is_sorted(ranges, is_before)) std::ranges::sort(ranges, is_before);
}

std::optional<Overlap> find_overlap(std::span<const MemoryRange> ranges) {
  Passed passed;
  for (const MemoryRange& range : ranges) {
    if (range.begin == range.end) continue;
    if (const MemoryRange* other = passed.in_the_way_of(range)) return Overlap{*other, range};
    passed.add(range);
  }
  return std::nullopt;
}

std::optional<Overlap> find_overlap(std::span<const MemoryRange> a,
                                    std::span<const MemoryRange> b) {
  Passed passed_a;
  Passed passed_b;
  while (!a.empty() || !b.empty()) {
    const bool is_of_a = b.empty() || (!a.empty() && !is_before(b.front(), a.front()));
    std::span<const MemoryRange>& from = is_of_a ? a : b;
    const MemoryRange& range = from.front();
    from = from.subspan(1);
    if (range.begin == range.end) continue;
    const MemoryRange* other = (is_of_a ? passed_b : passed_a).in_the_way_of(range);
    if (other != nullptr) return is_of_a ? Overlap{range, *other} : Overlap{*other, range};
    (is_of_a ? passed_a : passed_b).add(range);
  }
  return std::nullopt;
}

std::string sides_overlap(Collective collective) {
  return "the input and the output of " + std::string(name_of(collective)) +
         " overlap in part; use separate buffers" +
         (has_blocks(collective) ? "" : " or the very same one");
}

}  // namespace tutti::client

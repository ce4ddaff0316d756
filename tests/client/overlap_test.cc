// Ranges that get in each other's way, against the slow way: every byte of every pair.
#include "client/rank/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tutti::client {
namespace {

using Ranges = std::vector<MemoryRange>;

bool clash(const MemoryRange& a, const MemoryRange& b) {
  for (uintptr_t byte = a.begin; byte < a.end; ++byte)
    if (byte >= b.begin && byte < b.end) return a.is_written || b.is_written;
  return false;
}

bool any_clash(const Ranges& ranges) {
  for (size_t i = 0; i < ranges.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (clash(ranges[i], ranges[j])) return true;
  return false;
}

bool any_clash(const Ranges& a, const Ranges& b) {
  return std::ranges::any_of(a, [&](const MemoryRange& one) {
    return std::ranges::any_of(b, [&](const MemoryRange& other) { return clash(one, other); });
  });
}

std::string to_string(const Ranges& ranges) {
  std::string text;
  for (const MemoryRange& range : ranges)
    text += (range.is_written ? " w" : " r") + std::to_string(range.begin) + ".." +
            std::to_string(range.end);
  return text;
}

void expect_as_the_slow_way(Ranges ranges) {
  const Ranges given = ranges;
  sort_ranges(ranges);
  EXPECT_TRUE(std::ranges::is_permutation(ranges, given));
  const auto found = find_overlap(ranges);
  ASSERT_EQ(found.has_value(), any_clash(given)) << to_string(given);
  if (!found) return;
  EXPECT_TRUE(clash(found->first, found->second)) << to_string(given);
  EXPECT_NE(found->first.tensor, found->second.tensor);
}

void expect_as_the_slow_way(Ranges a, Ranges b) {
  sort_ranges(a);
  sort_ranges(b);
  const auto found = find_overlap(a, b);
  ASSERT_EQ(found.has_value(), any_clash(a, b)) << to_string(a) << " with" << to_string(b);
  if (!found) return;
  EXPECT_TRUE(clash(found->first, found->second));
  EXPECT_NE(std::ranges::find(a, found->first), a.end());
  EXPECT_NE(std::ranges::find(b, found->second), b.end());
}

// All ranges within four bytes, read and written, empty ones included.
Ranges every_range() {
  Ranges all;
  for (uintptr_t begin = 0; begin <= 4; ++begin)
    for (uintptr_t end = begin; end <= 4; ++end)
      for (const bool is_written : {false, true}) all.push_back({begin, end, 0, is_written});
  return all;
}

Ranges numbered(Ranges ranges) {
  for (size_t i = 0; i < ranges.size(); ++i) ranges[i].tensor = static_cast<uint32_t>(i);
  return ranges;
}

TEST(Overlap, NothingOverlapsInNothing) {
  EXPECT_FALSE(find_overlap(Ranges{}));
  EXPECT_FALSE(find_overlap(Ranges{}, Ranges{{0, 4, 0, true}}));
  EXPECT_FALSE(find_overlap(Ranges{{0, 4, 0, true}}, Ranges{}));
}

TEST(Overlap, EveryThreeSmallRanges) {
  const Ranges all = every_range();
  for (const MemoryRange& a : all)
    for (const MemoryRange& b : all)
      for (const MemoryRange& c : all) {
        expect_as_the_slow_way(numbered({a, b, c}));
        expect_as_the_slow_way(numbered({a, b}), numbered({c}));
        if (HasFatalFailure()) return;
      }
}

TEST(Overlap, RandomRanges) {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000 && !HasFatalFailure(); ++round) {
    const uint32_t space = 1 + random() % 300;
    const uint32_t longest = 1 + random() % 20;
    const auto some = [&] {
      Ranges ranges(random() % 20);
      for (MemoryRange& range : ranges) {
        range.begin = random() % space;
        range.end = range.begin + random() % longest;
        range.is_written = random() % 3 == 0;
      }
      return numbered(std::move(ranges));
    };
    expect_as_the_slow_way(some());
    expect_as_the_slow_way(some(), some());
  }
}

// The highest addresses are addresses like others.
TEST(Overlap, AtTheEndOfMemory) {
  const Ranges end{{UINTPTR_MAX - 8, UINTPTR_MAX, 0, true}};
  EXPECT_TRUE(find_overlap(end, Ranges{{UINTPTR_MAX - 1, UINTPTR_MAX, 1, false}}));
  EXPECT_FALSE(find_overlap(end, Ranges{{UINTPTR_MAX - 16, UINTPTR_MAX - 8, 1, true}}));
}

}  // namespace
}  // namespace tutti::client

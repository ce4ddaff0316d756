// The folding of matched operations whose blocks have counts of their own. Without a board.
#include "tests/board/matched_hosts.h"

namespace tutti::board {
namespace {

using testing::Counts;
using testing::uneven_cases;

TEST(MatchedCounts, ValuesOfEveryKind) {
  for (const int ranks : {1, 2, 3, 5})
    for (const Dtype dtype : {Dtype::f32, Dtype::u8, Dtype::f64})
      for (const Reference& uneven :
           uneven_cases(ranks, 3 * kBoardBlockBytes / 8 / static_cast<size_t>(ranks) + 17))
        for (const bool in_place : {false, true}) {
          if (in_place && uneven.is_exchange()) continue;
          Hosts hosts(uneven, dtype);
          if (in_place) hosts.in_place();
          hosts.fill();
          hosts.run();
          hosts.check();
          if (HasFatalFailure()) return;
        }
}

TEST(MatchedCounts, BlocksWithoutElementsAreNotFolded) {
  Hosts none({.collective = Collective::all_to_all, .ranks = 3, .counts = Counts(9, 0)},
             Dtype::f32);
  ASSERT_TRUE(none.read());
  EXPECT_EQ(decide(none.op()).next, Phase::done);
  Hosts one({.collective = Collective::all_to_all, .ranks = 2, .counts = {0, 5, 0, 0}}, Dtype::f32);
  ASSERT_TRUE(one.read());
  EXPECT_EQ(one.op().blocks, 1u);
}

Hosts three_ranks(const Counts& counts = {1, 2, 3}) {
  return {{.collective = Collective::all_gather, .ranks = 3, .counts = counts}, Dtype::f32};
}

TEST(MatchedCounts, RanksThatDisagreeDoNotMatch) {
  Hosts layout = three_ranks();
  layout.request(1).layout += 1;
  EXPECT_FALSE(layout.read());
  Hosts without = three_ranks();
  without.request(1).flags = 0;
  EXPECT_FALSE(without.read());
}

// The hash of the layout is not that of the counts that a rank wrote.
TEST(MatchedCounts, CountsThatChangeDoNotMatch) {
  Hosts hosts = three_ranks();
  const uint64_t other = 1'000'000'000'000;
  std::memcpy(hosts.at(0, kCountsOffset), &other, sizeof(other));
  EXPECT_FALSE(hosts.read());
}

// With the layout of those counts.
void expect_refused(Collective collective, const Counts& counts, uint64_t offset) {
  Hosts hosts = three_ranks(counts);
  hosts.each([&](uint32_t, Request& request) {
    request.collective = static_cast<uint8_t>(collective);
    request.count = offset;
  });
  EXPECT_FALSE(hosts.read()) << name_of(collective) << " at " << offset;
}

TEST(MatchedCounts, HostileRequestsAreRefused) {
  const Counts good = {1, 2, 3};
  for (const uint64_t offset :
       {uint64_t{0}, kSegmentBytes - 16, kSegmentBytes, ~uint64_t{7}, kCountsOffset + 4})
    expect_refused(Collective::all_gather, good, offset);
  expect_refused(Collective::all_reduce, good, kCountsOffset);
  expect_refused(Collective::broadcast, good, kCountsOffset);
  expect_refused(Collective::all_gather, {1, 1 << 20, 3}, kCountsOffset);  // Beyond the segment.
  expect_refused(Collective::all_gather, {size_t{1} << 63, size_t{1} << 63, 0}, kCountsOffset);
  expect_refused(Collective::all_gather, {SIZE_MAX, 1, 0}, kCountsOffset);
  expect_refused(Collective::reduce_scatter, {SIZE_MAX / 4, SIZE_MAX / 4, SIZE_MAX / 4 * 2},
                 kCountsOffset);
}

}  // namespace
}  // namespace tutti::board

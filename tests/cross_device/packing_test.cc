// Packs of a batch, by count and by bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "client/faces/base/base.h"

namespace tutti::faces {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<size_t> sizes_of(const std::vector<Pack>& packs) {
  std::vector<size_t> sizes;
  for (const Pack& pack : packs) sizes.push_back(pack.size());
  return sizes;
}

TEST(Packing, TheLastPackHasTheRemainder) {
  EXPECT_THAT(pack_sizes(10, 3), ElementsAre(3, 3, 4));
  EXPECT_THAT(pack_sizes(9, 2), ElementsAre(4, 5));
  EXPECT_THAT(pack_sizes(2, 8), ElementsAre(0, 0, 0, 0, 0, 0, 0, 2));
  EXPECT_THAT(pack_sizes(0, 2), ElementsAre(0, 0));
}

TEST(Packing, CutsThroughTensors) {
  EXPECT_THAT(pack_by_count({6, 4}, 3),
              ElementsAre(Pack{{0, 0, 3}}, Pack{{0, 3, 3}}, Pack{{1, 0, 4}}));
  EXPECT_THAT(pack_by_count({1, 0, 2}, 1), ElementsAre(Pack{{0, 0, 1}, {2, 0, 2}}));
  EXPECT_THAT(pack_by_count({2}, 8), ElementsAre(Pack{{0, 0, 2}}));
  EXPECT_THAT(pack_by_count({0, 0}, 3), IsEmpty());
  EXPECT_THAT(pack_by_count({}, 3), IsEmpty());
}

TEST(Packing, EveryElementIsInExactlyOnePack) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<size_t> counts(random() % 6);
    for (size_t& count : counts) count = random() % 40;
    std::vector<std::vector<int>> seen;
    for (const size_t count : counts) seen.emplace_back(count, 0);
    for (const Pack& pack : pack_by_count(counts, 1 + random() % 9))
      for (const Piece& piece : pack)
        for (size_t i = 0; i < piece.count; ++i) ++seen[piece.tensor][piece.offset + i];
    for (const std::vector<int>& tensor : seen)
      for (const int times : tensor) ASSERT_EQ(times, 1) << "round " << round;
  }
}

TEST(Packing, ByBytesOvershoots) {
  const std::vector<size_t> scalars(5, 1);
  EXPECT_THAT(sizes_of(pack_by_bytes(scalars, 4, 4)), ElementsAre(2, 2, 1));
  EXPECT_THAT(sizes_of(pack_by_bytes(scalars, 4, 8)), ElementsAre(3, 2));
  EXPECT_THAT(sizes_of(pack_by_bytes(scalars, 4, 1)), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_THAT(sizes_of(pack_by_bytes(scalars, 4, 0)), ElementsAre(5));
  EXPECT_THAT(pack_by_bytes({}, 4, 4), IsEmpty());
}

TEST(Packing, Each) {
  EXPECT_THAT(pack_each({3, 0}), ElementsAre(Pack{{0, 0, 3}}, Pack{{1, 0, 0}}));
}

}  // namespace
}  // namespace tutti::faces

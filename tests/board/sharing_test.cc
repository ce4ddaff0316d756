// Shared folds. Explores every interleaving of sharing_model.h: no block is folded twice, before
// its sources are there, or after the end, and no rank sleeps for ever, whatever is taken back,
// fails or dies. Mutants prove the explorer. And what a fold computes, by exact sums.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "tests/board/sharing_model.h"
#include "tests/board/small_explorer.h"

namespace tutti::board {
namespace sharing {
namespace {

using Case = Setup;  // testing::Test has a Setup, too.
using Explorer = SmallExplorer<Case, State, Actors>;

TEST(BoardSharing, EveryInterleavingEndsWithEveryBlockFoldedOnce) {
  for (const Case& setup :
       {Case{.ranks = 1, .takes_back = true}, Case{}, Case{.folds = 1, .takes_back = true}}) {
    Explorer explorer(setup);
    EXPECT_EQ(explorer.explore(), "") << setup.ranks << " ranks, " << setup.folds << " folds";
    EXPECT_GT(explorer.states(), 200u);
  }
}

TEST(BoardSharing, FailuresAndDeathsAtEveryMomentLeaveNobodyFolding) {
  for (const Case& setup :
       {Case{.ranks = 1, .takes_back = true, .fails = true},
        Case{.ranks = 1, .takes_back = true, .dies = true}, Case{.folds = 1, .fails = true},
        Case{.folds = 1, .dies = true}, Case{.folds = 1, .worker_dies = true},
        Case{.folds = 1, .takes_back = true, .fails = true}}) {
    Explorer explorer(setup);
    EXPECT_EQ(explorer.explore(), "") << setup.dies << setup.worker_dies;
    EXPECT_GT(explorer.states(), 500u);
  }
}

TEST(BoardSharing, FaultsPutInAreFound) {
  for (const Fault fault : {Fault::publishes_without_waking, Fault::sleeps_without_reading_shared,
                            Fault::announces_before_publishing, Fault::finishes_without_calling,
                            Fault::counts_before_it_is_done, Fault::claims_without_exchange}) {
    Explorer explorer({.fault = fault});
    EXPECT_NE(explorer.explore(), "") << static_cast<int>(fault);
  }
}

TEST(BoardSharing, FaultsPutInAreFoundWhereItIsTakenBackFailsOrDies) {
  const std::array<Case, 5> setups = {
      Case{.takes_back = true, .fault = Fault::counts_without_number},
      Case{.takes_back = true, .fault = Fault::takes_back_without_counting},
      Case{.takes_back = true, .fault = Fault::takes_back_what_is_held},
      Case{.fails = true, .fault = Fault::ends_while_held},
      Case{.worker_dies = true, .fault = Fault::leaves_while_held}};
  for (const Case& setup : setups) {
    Explorer explorer(setup);
    EXPECT_NE(explorer.explore(), "") << static_cast<int>(setup.fault);
  }
}

}  // namespace
}  // namespace sharing

namespace {

// Two segments and wire memory of 16 floats each.
class SharedFoldTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kFloats = 16;

  SharedFoldTest() {
    for (size_t i = 0; i < values_.size(); ++i)
      std::iota(values_[i].begin(), values_[i].end(), 100.0F * static_cast<float>(i + 1));
    for (size_t i = 0; i < 2; ++i) segments_.push_back(view(i));
  }
  SegmentView view(size_t i) {
    return {reinterpret_cast<std::byte*>(values_[i].data()), kFloats * sizeof(float)};
  }
  FoldMemory memory() { return {segments_, view(2)}; }
  bool run() { return run_shared(fold_.head, fold_.places, memory(), choose_kernel()); }
  // The first 8 floats of both segments and of wire memory, into the last 8 of the second and wire.
  void describe() {
    fold_.head = {.count = 8,
                  .carry = pack_place(kWirePlace, 0),
                  .divisor = 1,
                  .strategy = pack_strategy(TUTTI_CENTRALIZED, 0),
                  .sources = 2,
                  .targets = 2,
                  .dtype = TUTTI_F32,
                  .op = TUTTI_SUM,
                  .carry_dtype = TUTTI_F32,
                  .target_dtype = TUTTI_F32,
                  .past_cache = 0,
                  .first = 0,
                  .number = 1};
    const std::array<uint64_t, 4> places = {pack_place(0, 0), pack_place(1, 0), pack_place(1, 32),
                                            pack_place(kWirePlace, 32)};
    std::copy(places.begin(), places.end(), fold_.places);
  }

  std::array<std::array<float, kFloats>, 3> values_;
  std::vector<SegmentView> segments_;
  SharedFold fold_{};
};

TEST_F(SharedFoldTest, SourcesAndCarryGoToAllTargets) {
  describe();
  ASSERT_TRUE(run());
  for (size_t i = 0; i < 8; ++i)
    for (const size_t target : {1, 2})
      EXPECT_EQ(values_[target][8 + i], 600 + 3 * static_cast<float>(i));
  EXPECT_EQ(values_[0][8], 108) << "no target";
}

// A host's value of 16-bit floats is f32 once several are folded; a host of one rank sends 16 bits.
TEST_F(SharedFoldTest, SixteenBitFloatsAndTheirAccumulatorsGoTogether) {
  for (const uint8_t dtype : {TUTTI_F16, TUTTI_BF16})
    for (const uint8_t source : {dtype, uint8_t{TUTTI_F32}})
      for (const uint8_t carry : {dtype, uint8_t{TUTTI_F32}})
        for (const uint8_t target : {dtype, uint8_t{TUTTI_F32}}) {
          describe();
          fold_.head.dtype = source;
          fold_.head.carry_dtype = carry;
          fold_.head.target_dtype = target;
          EXPECT_TRUE(run()) << int{source} << int{carry} << int{target};
        }
}

TEST_F(SharedFoldTest, AnF32ValueAndAnF16CarryAreRoundedOnceToF16) {
  describe();
  fold_.head.carry_dtype = fold_.head.target_dtype = TUTTI_F16;
  std::array<uint16_t, 8> ones;
  ones.fill(0x3c00);
  std::memcpy(values_[2].data(), ones.data(), sizeof ones);
  values_[0].fill(2);
  values_[1].fill(3);
  ASSERT_TRUE(run());
  std::array<uint16_t, 8> sums;
  std::memcpy(sums.data(), &values_[1][8], sizeof sums);
  for (const uint16_t sum : sums) EXPECT_EQ(sum, 0x4600) << "6";
}

// Other ranks of the job may write there.
TEST_F(SharedFoldTest, WhatLiesOutsideOfTheBoardIsNotTouched) {
  const auto refused = [this](const auto& change) {
    describe();
    change(fold_);
    const auto before = values_;
    EXPECT_FALSE(run());
    EXPECT_EQ(values_, before);
  };
  refused([](SharedFold& fold) { fold.head.count = 9; });
  refused([](SharedFold& fold) { fold.head.count = UINT64_MAX; });
  refused([](SharedFold& fold) { fold.head.sources = kLocalRanksMax + 1; });
  refused([](SharedFold& fold) { fold.head.targets = 0; });
  refused([](SharedFold& fold) { fold.head.divisor = 0; });
  refused([](SharedFold& fold) { fold.head.dtype = kDtypes; });
  refused([](SharedFold& fold) { fold.head.carry_dtype = TUTTI_F64; });
  refused([](SharedFold& fold) { fold.head.target_dtype = TUTTI_I32; });
  refused([](SharedFold& fold) { fold.head.op = TUTTI_BAND; });
  refused([](SharedFold& fold) { fold.head.strategy = 77; });
  refused([](SharedFold& fold) { fold.head.carry = pack_place(2, 0); });
  refused([](SharedFold& fold) { fold.places[0] = pack_place(1, 36); });
  refused([](SharedFold& fold) { fold.places[2] = pack_place(kWirePlace, UINT32_MAX); });
}

TEST_F(SharedFoldTest, AnAddressHasAPlaceWhereAllOfItLies) {
  EXPECT_EQ(place_of(&values_[1][4], 48, memory()), pack_place(1, 16));
  EXPECT_EQ(place_of(&values_[2][0], 64, memory()), pack_place(kWirePlace, 0));
  EXPECT_EQ(place_of(&values_[2][1], 64, memory()), kNowhere);
  EXPECT_EQ(place_of(this, 1, memory()), kNowhere);
}

}  // namespace
}  // namespace tutti::board

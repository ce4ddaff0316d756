// Explores every interleaving of passing_model.h: no place is filled before its result was taken,
// no result is taken before it is written, no link reads a window that was given back, and no rank
// sleeps for ever, whenever the operation fails. Mutants prove the explorer.
#include <gtest/gtest.h>

#include "tests/board/passing_model.h"
#include "tests/board/small_explorer.h"

namespace tutti::board::passing {
namespace {

using Explorer = SmallExplorer<Setup, State, Actors>;

// A failure is possible at every moment, and may never come.
TEST(BoardPassing, EveryInterleavingOfARankEndsWithEveryResultTaken) {
  for (uint32_t window = 1; window <= kPlaces; ++window)
    for (uint32_t blocks = 1; blocks <= 6; ++blocks) {
      Explorer explorer({1, blocks, window, true});
      EXPECT_EQ(explorer.explore(), "") << blocks << " blocks through " << window;
      EXPECT_GT(explorer.states(), 100u);
    }
}

TEST(BoardPassing, EveryInterleavingOfTwoRanksEndsWithEveryResultTaken) {
  for (uint32_t window = 1; window <= 2; ++window)
    for (uint32_t blocks = 1; blocks <= 3; ++blocks) {
      Explorer explorer({2, blocks, window, true});
      EXPECT_EQ(explorer.explore(), "") << blocks << " blocks through " << window;
      EXPECT_GT(explorer.states(), 10'000u);
    }
}

// Where results are common, no place of theirs is written again before all ranks have taken it.
TEST(BoardPassing, EveryInterleavingWithCommonResultsEndsWithEveryResultTaken) {
  for (uint32_t window = 1; window <= 2; ++window)
    for (uint32_t blocks = 1; blocks <= 3; ++blocks) {
      Explorer explorer({2, blocks, window, true, true});
      EXPECT_EQ(explorer.explore(), "") << blocks << " blocks through " << window;
      EXPECT_GT(explorer.states(), 10'000u);
    }
}

TEST(BoardPassing, FaultsPutInAreFoundWhereResultsAreCommon) {
  for (const Fault fault : {Fault::settles_before_it_takes, Fault::fills_before_it_takes}) {
    Explorer explorer({2, 2, 1, false, true, fault});
    EXPECT_NE(explorer.explore(), "") << static_cast<int>(fault);
  }
}

TEST(BoardPassing, FaultsPutInAreFoundWithARank) {
  for (const Fault fault : {Fault::fills_without_calling, Fault::reads_the_word_too_early,
                            Fault::passes_without_waking, Fault::sleeps_without_reading_passed,
                            Fault::fills_before_it_takes, Fault::ends_without_waking}) {
    Explorer explorer({1, 5, 2, false, false, fault});
    EXPECT_NE(explorer.explore(), "") << static_cast<int>(fault);
  }
}

// These faults need two ranks.
TEST(BoardPassing, FaultsPutInAreFoundWithTwoRanks) {
  for (const Fault fault : {Fault::wakes_without_counting, Fault::passes_for_the_first_rank}) {
    Explorer alone({1, 5, 2, false, false, fault});
    EXPECT_EQ(alone.explore(), "") << static_cast<int>(fault);
    Explorer explorer({2, 2, 1, false, false, fault});
    EXPECT_NE(explorer.explore(), "") << static_cast<int>(fault);
  }
}

TEST(BoardPassing, FaultsPutInAreFoundWhereItFails) {
  for (const Fault fault : {Fault::ends_while_a_link_reads, Fault::takes_what_failed}) {
    Explorer never({1, 3, 2, false, false, fault});
    EXPECT_EQ(never.explore(), "") << static_cast<int>(fault);
    Explorer explorer({1, 3, 2, true, false, fault});
    EXPECT_NE(explorer.explore(), "") << static_cast<int>(fault);
  }
}

}  // namespace
}  // namespace tutti::board::passing

// Explores every interleaving of passing_model.h: no place is filled before its result was taken,
// no result is taken before it is written, no link reads a window that was given back, and no rank
// sleeps for ever, whenever the operation fails. Mutants prove the explorer.
#include <gtest/gtest.h>

#include <deque>
#include <unordered_set>

#include "tests/board/passing_model.h"

namespace tutti::board::passing {
namespace {

class Explorer {
 public:
  explicit Explorer(const Setup& setup) : setup_(setup) {}

  // The first violation; "": none in any interleaving.
  std::string explore() {
    State state;
    Actors::begin(state);
    enter(state);
    while (!frontier_.empty() && wrong_.empty()) {
      std::memcpy(static_cast<void*>(&state), &frontier_.front(), sizeof state);
      frontier_.pop_front();
      expand(state);
    }
    return wrong_;
  }
  size_t states() const { return seen_.size(); }

 private:
  // A hash of all of a state's bytes. A collision would hide a fault, not invent one.
  struct Key {
    uint64_t low;
    uint64_t high;
    bool operator==(const Key&) const = default;
  };
  struct Low {
    size_t operator()(const Key& key) const { return key.low; }
  };

  // Progress must not depend on a failure: all must end without one, too.
  void expand(const State& state) {
    bool any = advance(state, [](Actors& actors) { return actors.step_worker(); });
    any |= advance(state, [](Actors& actors) { return actors.arrive(); });
    bool over = true;
    for (uint32_t local_rank = 0; local_rank < setup_.ranks; ++local_rank) {
      any |= advance(state, [local_rank](Actors& actors) { return actors.step_rank(local_rank); });
      over &= state.ranks[local_rank].at == RankAt::finished;
    }
    if (setup_.fails) advance(state, [](Actors& actors) { return actors.fail(); });
    if (!any && !over && wrong_.empty()) wrong_ = "nobody goes on";
  }
  template <class Move>
  bool advance(const State& from, const Move& move) {
    State next;
    std::memcpy(static_cast<void*>(&next), &from, sizeof next);
    Actors actors(setup_, next, wrong_);
    if (!move(actors)) return false;
    enter(next);
    return true;
  }
  void enter(const State& state) {
    if (!seen_.insert(hash(state)).second) return;
    frontier_.emplace_back();
    std::memcpy(static_cast<void*>(&frontier_.back()), &state, sizeof state);
  }
  static Key hash(const State& state) {
    Key key{0x9e3779b97f4a7c15, 0xd1b54a32d192ed03};
    for (size_t at = 0; at < sizeof state; at += 8) {
      uint64_t bits;
      std::memcpy(&bits, reinterpret_cast<const unsigned char*>(&state) + at, 8);
      key.low = (key.low ^ bits) * 0xff51afd7ed558ccd;
      key.low ^= key.low >> 29;
      key.high = (key.high + bits) * 0xc4ceb9fe1a85ec53;
      key.high ^= key.high >> 31;
    }
    return key;
  }

  const Setup setup_;
  std::unordered_set<Key, Low> seen_;
  std::deque<State> frontier_;
  std::string wrong_;
};

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

TEST(BoardPassing, FaultsPutInAreFoundWithARank) {
  for (const Fault fault : {Fault::fills_without_calling, Fault::reads_the_word_too_early,
                            Fault::passes_without_waking, Fault::sleeps_without_reading_passed,
                            Fault::fills_before_it_takes, Fault::ends_without_waking}) {
    Explorer explorer({1, 5, 2, false, fault});
    EXPECT_NE(explorer.explore(), "") << static_cast<int>(fault);
  }
}

// These faults need two ranks.
TEST(BoardPassing, FaultsPutInAreFoundWithTwoRanks) {
  for (const Fault fault : {Fault::wakes_without_counting, Fault::passes_for_the_first_rank}) {
    Explorer alone({1, 5, 2, false, fault});
    EXPECT_EQ(alone.explore(), "") << static_cast<int>(fault);
    Explorer explorer({2, 2, 1, false, fault});
    EXPECT_NE(explorer.explore(), "") << static_cast<int>(fault);
  }
}

TEST(BoardPassing, FaultsPutInAreFoundWhereItFails) {
  for (const Fault fault : {Fault::ends_while_a_link_reads, Fault::takes_what_failed}) {
    Explorer never({1, 3, 2, false, fault});
    EXPECT_EQ(never.explore(), "") << static_cast<int>(fault);
    Explorer explorer({1, 3, 2, true, fault});
    EXPECT_NE(explorer.explore(), "") << static_cast<int>(fault);
  }
}

}  // namespace
}  // namespace tutti::board::passing

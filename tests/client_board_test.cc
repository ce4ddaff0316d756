// The ranks' side of the board, each step by itself: what a job does at moments that are too short
// to meet from outside. The worker's side is a real session's.
#include <unistd.h>

#include <thread>

#include "client/board.h"
#include "client/futex.h"
#include "tests/session_board.h"

namespace tutti {
namespace {

// A rank as the client library has it.
class Rank {
 public:
  Rank(FakeTrainer& trainer, uint32_t rank, const std::vector<int>& memories) {
    EXPECT_TRUE(own_.map(client::Fd(dup(trainer.memory()))).ok());
    std::vector<client::Fd> fds;
    for (const int memory : memories) fds.emplace_back(dup(memory));
    EXPECT_TRUE(client::Board::open(client::Fd(dup(trainer.board_memory())), std::move(fds), rank,
                                    own_, trainer.doorbell(), board_)
                    .ok());
  }
  client::Board& board() { return *board_; }

  // An all_reduce of one float, which is `value`.
  bool arrive(uint64_t number, uint32_t slot, float value, uint32_t flags = kBoardBlocking) {
    BoardEntry entry{};
    entry.request = all_reduce_request(slot);
    entry.request.count = 1;
    entry.flags = flags;
    std::memcpy(own_.base() + kArenaOffset, &value, sizeof(value));
    own_.completion(slot).state = board_slot_word(SlotState::pending, number);
    return board_->arrive(number, entry);
  }
  float result() const {
    float value = 0;
    std::memcpy(&value, own_.base() + kArenaOffset + 64, sizeof(value));
    return value;
  }
  bool is_folded(uint32_t slot) const {
    return state_of(own_.completion(slot).state.load()) == SlotState::folded;
  }

 private:
  client::Segment own_;
  std::unique_ptr<client::Board> board_;
};

class ClientBoardTest : public BoardTest {
 protected:
  ClientBoardTest() : BoardTest(2) {
    const std::vector<int> memories = {trainer(0).memory(), trainer(1).memory()};
    for (uint32_t rank = 0; rank < 2; ++rank)
      ranks_.push_back(std::make_unique<Rank>(trainer(rank), rank, memories));
  }
  Rank& rank(uint32_t number) { return *ranks_[number]; }
  // Of fold(): either both are, or none is.
  bool are_folded() {
    const SlotState states[] = {state_of(completion(0).state.load()),
                                state_of(completion(1).state.load())};
    EXPECT_EQ(states[0], states[1]);
    return states[0] == SlotState::folded;
  }

  std::vector<std::unique_ptr<Rank>> ranks_;
};

using Stage = client::Board::Stage;

TEST_F(ClientBoardTest, TheLastToArriveFoldsForAll) {
  for (uint64_t number = 0; number < 3 * kBoardSlots; ++number) {
    const auto value = static_cast<float>(number);
    ASSERT_TRUE(rank(number % 2).arrive(number, 3, value));
    ASSERT_EQ(rank(0).board().stage(number), Stage::waiting);
    ASSERT_TRUE(rank((number + 1) % 2).arrive(number, 4, 1));
    ASSERT_EQ(rank(0).board().stage(number), Stage::elsewhere);
    ASSERT_TRUE(rank(number % 2).is_folded(3) && rank((number + 1) % 2).is_folded(4));
    ASSERT_EQ(rank(0).result(), value + 1);
    ASSERT_EQ(rank(1).result(), value + 1);
    ASSERT_EQ(slot(number).entries[0].holding.load(), 0u);
    ASSERT_EQ(slot(number).entries[1].holding.load(), 0u);
  }
}

// 2^35 operations are half a day's work.
TEST_F(ClientBoardTest, TurnsWrap) {
  const uint64_t wrap = uint64_t{kBoardSlots} << kTurnBits;
  wind_to(wrap - kBoardSlots);
  for (uint64_t number = wrap - kBoardSlots; number < wrap + kBoardSlots; ++number) {
    ASSERT_TRUE(rank(0).arrive(number, 3, 2));
    ASSERT_TRUE(rank(1).arrive(number, 3, 3)) << number - wrap;
    ASSERT_EQ(rank(0).result(), 5);
  }
  EXPECT_EQ(turn_of(slot(0).word.load()), 1u);
}

TEST_F(ClientBoardTest, WhoComesToADivertedOperationGoesToTheWorker) {
  ASSERT_TRUE(rank(0).arrive(0, 7, 1));
  rank(0).board().divert(0);
  EXPECT_FALSE(rank(1).arrive(0, 8, 1));
  drain(loop_);
  EXPECT_EQ(slots_of(0), Slots{7});
  EXPECT_FALSE(rank(1).arrive(0, 8, 1)) << "after the worker took it as well";
  EXPECT_EQ(rank(1).board().stage(0), Stage::elsewhere);
}

TEST_F(ClientBoardTest, OutOfUseNobodyArrives) {
  session(0).use_board(false);
  EXPECT_FALSE(rank(0).arrive(0, 7, 1));
  EXPECT_FALSE(rank(1).arrive(0, 8, 1));
}

TEST_F(ClientBoardTest, WhoArrivedBeforeItWasOutOfUseIsTakenOver) {
  ASSERT_TRUE(rank(0).arrive(0, 7, 1));
  session(0).use_board(false);
  drain(loop_);
  EXPECT_EQ(slots_of(0), Slots{7});
}

TEST_F(ClientBoardTest, RanksThatDisagreeAreTheWorkersBusiness) {
  ASSERT_TRUE(rank(0).arrive(0, 7, 1));
  slot(0).entries[0].request.count = 2;
  ASSERT_TRUE(rank(1).arrive(0, 8, 1));
  drain(loop_);
  EXPECT_EQ(slots_of(0), Slots{7});
  EXPECT_EQ(slots_of(1), Slots{8});
  EXPECT_EQ(slot(0).entries[1].holding.load(), 0u);
}

// Whoever is a whole turn ahead hands over what waits, and goes to the worker itself until the slot
// is clear; also where turns wrap.
TEST_F(ClientBoardTest, ARankFarAheadGoesToTheWorker) {
  const uint64_t wrap = uint64_t{kBoardSlots} << kTurnBits;
  for (const uint64_t first : {uint64_t{0}, wrap - kBoardSlots}) {
    wind_to(first);
    events(0).requests.clear();
    EXPECT_TRUE(rank(0).arrive(first, 7, 1));
    EXPECT_FALSE(rank(0).arrive(first + kBoardSlots, 9, 1)) << "the worker has not cleared it";
    rank(0).board().pass(first + kBoardSlots);
    drain(loop_);
    EXPECT_EQ(slots_of(0), Slots{7});
    EXPECT_TRUE(rank(1).arrive(first + kBoardSlots, 8, 1));
    drain(loop_);
    EXPECT_EQ(slots_of(1), Slots{8}) << "rank 0 passed there: nobody waits for it";
    EXPECT_TRUE(rank(0).arrive(first + 2 * kBoardSlots, 9, 1)) << "nobody waits in between";
    session(0).complete(7, {});
    session(1).complete(8, {});
    events(1).requests.clear();
  }
}

// ---- Deaths of those who fold ----

TEST_F(ClientBoardTest, WhatADeadRankFoldedIsDone) {
  fold(0);
  slot(0).folded = board_count(0, 1);
  slot(0).claimed = board_count(0, 1);
  slot(0).entries[1].holding = 1;
  EXPECT_TRUE(rank(0).board().conclude(0));
  EXPECT_TRUE(are_folded());
  EXPECT_TRUE(is_cleared(0));
  EXPECT_FALSE(rank(0).board().conclude(0)) << "once";
}

TEST_F(ClientBoardTest, WhatIsNotFoldedIsNotConcluded) {
  fold(0);
  EXPECT_FALSE(rank(0).board().conclude(0)) << "a block is missing";
  slot(0).folded = board_count(1, 1);
  EXPECT_FALSE(rank(0).board().conclude(0)) << "of another turn";
  slot(0).folded = board_count(0, 1);
  slot(0).word = board_word(0, BoardPhase::failing, 3);
  EXPECT_FALSE(rank(0).board().conclude(0)) << "the worker's";
  EXPECT_EQ(rank(0).board().stage(0), Stage::failing);
  EXPECT_FALSE(are_folded());
}

// It was stopped after it completed one rank; the others do not wait for it, and when it goes on
// it completes nothing that came later.
TEST_F(ClientBoardTest, WhoStoppedWhileItCompletedIsNotWaitedFor) {
  fold(0);
  slot(0).folded = board_count(0, 1);
  slot(0).word = board_word(0, BoardPhase::ending, 3);
  client::complete(completion(0), 0);
  completion(0).state = board_slot_word(SlotState::pending, 1);
  ASSERT_TRUE(rank(1).board().conclude(0));
  EXPECT_EQ(state_of(completion(1).state.load()), SlotState::folded);
  EXPECT_TRUE(is_cleared(0));
  EXPECT_EQ(completion(0).state.load(), board_slot_word(SlotState::pending, 1));
}

TEST_F(ClientBoardTest, OnlyTheOperationOfThatNumberIsCompleted) {
  std::atomic<uint32_t>& state = completion(0).state;
  const uint32_t others[] = {slot_word(SlotState::pending), slot_word(SlotState::asleep),
                             slot_word(SlotState::free), slot_word(SlotState::done),
                             board_slot_word(SlotState::asleep, 1)};
  for (const uint32_t other : others) {
    state = other;
    client::complete(completion(0), 0);
    client::complete(completion(0), 2);
    EXPECT_EQ(state.load(), other);
  }
  client::complete(completion(0), 1);
  EXPECT_EQ(state.load(), board_slot_word(SlotState::folded, 1));
}

TEST_F(ClientBoardTest, WhoSleepsKeepsTheTag) {
  std::atomic<uint32_t>& state = completion(0).state;
  state = board_slot_word(SlotState::pending, 5);
  client::sleep_while_pending(state, 1, [&] {
    EXPECT_EQ(state.load(), board_slot_word(SlotState::asleep, 5));
    return true;
  });
  client::stir(state);
  EXPECT_EQ(state.load(), board_slot_word(SlotState::pending, 5));
  for (const uint32_t over :
       {board_slot_word(SlotState::folded, 5), slot_word(SlotState::done), uint32_t{0}}) {
    state = over;
    client::sleep_while_pending(state, 1'000'000, [] { return true; });
    client::stir(state);
    EXPECT_EQ(state.load(), over);
  }
}

TEST_F(ClientBoardTest, SeveralMayConcludeAtOnce) {
  for (uint64_t number = 0; number < 200; ++number) {
    fold(number);
    slot(number).folded = board_count(turn_at(number), 1);
    std::thread other([&] { rank(1).board().conclude(number); });
    rank(0).board().conclude(number);
    other.join();
    ASSERT_TRUE(are_folded());
    ASSERT_TRUE(is_cleared(number));
  }
}

// A rank that was stopped and goes on must not complete what the worker gave up.
TEST_F(ClientBoardTest, WhatWasGivenUpIsNotCompleted) {
  fold(0);
  for (uint32_t r = 0; r < 2; ++r) slot(0).entries[r].request.count = 8;
  slot(0).claimed = board_count(0, UINT32_MAX);
  EXPECT_FALSE(rank(0).board().help(0));
  slot(0).word = board_word(1, BoardPhase::open, 0);
  slot(0).claimed = board_count(0, 0);
  EXPECT_FALSE(rank(0).board().help(0));
  EXPECT_FALSE(are_folded());
}

TEST_F(ClientBoardTest, HelpersShareTheBlocks) {
  const uint64_t count = 2 * kBoardBlockBytes / 4 + 5;  // Three blocks.
  for (uint32_t r = 0; r < 2; ++r) {
    arrive(r, 0, 9);
    Request& request = slot(0).entries[r].request;
    request.count = count;
    request.out_offset = request.in_offset;
    auto* values = reinterpret_cast<float*>(trainer(r).at(kArenaOffset));
    for (uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 100 + r);
  }
  slot(0).claimed = slot(0).folded = board_count(0, 0);
  slot(0).word = board_word(0, BoardPhase::folding, 3);
  EXPECT_TRUE(rank(0).board().help(0, 1));
  EXPECT_TRUE(rank(1).board().help(0, 1));
  EXPECT_FALSE(are_folded());
  EXPECT_TRUE(rank(0).board().help(0));
  EXPECT_TRUE(are_folded());
  EXPECT_FALSE(rank(1).board().help(0));
  for (uint32_t r = 0; r < 2; ++r) {
    const auto* values = reinterpret_cast<const float*>(trainer(r).at(kArenaOffset));
    for (uint64_t i = 0; i < count; ++i)
      ASSERT_EQ(values[i], static_cast<float>(2 * (i % 100) + 1)) << r << " " << i;
  }
}

}  // namespace
}  // namespace tutti

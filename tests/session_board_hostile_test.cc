// What a trainer may write on the board: anything. It harms its own job at most.
#include <random>

#include "tests/session_board.h"

namespace tutti {
namespace {

using testing::HasSubstr;

// A request that the worker has taken is completed by it alone.
TEST_F(BoardTest, AFailureTouchesNoCompletionThatTheWorkerHolds) {
  trainer(0).submit(all_reduce_request(9));
  drain(loop_);
  trainer(0).completion(9).state = slot_word(SlotState::pending);
  fold(0);
  slot(0).entries[1].holding = 1;
  trainer(1).hang_up();
  ASSERT_TRUE(turn_until(loop_, [&] { return is_done(2); }));
  EXPECT_FALSE(is_done(0));
  session(0).complete(9, {});
  EXPECT_EQ(completion(0).code, TUTTI_OK);
}

TEST_F(BoardTest, EntriesThatMakeNoSenseEndTheirSessionOnly) {
  arrive(0, 0, 1).request.verb = 200;
  arrive(1, 0, kRingSlots);
  arrive(2, 0, 3).ring_head = 0xdeadbeef;
  divert(0);
  trainer(2).ring();
  drain(loop_);
  EXPECT_EQ(events(0).ends, 1);
  EXPECT_THAT(events(0).why.message(), HasSubstr("verb"));
  EXPECT_EQ(events(1).ends, 1);
  EXPECT_EQ(events(2).ends, 0);
  EXPECT_EQ(slots_of(2), Slots{3});
}

void scramble(std::mt19937_64& random, FakeTrainer& trainer) {
  BoardSlot& slot = trainer.board_slot(static_cast<uint32_t>(random() % kBoardSlots));
  const auto turn = static_cast<uint32_t>(random() % 4 == 0 ? random() : random() % 2);
  slot.word =
      board_word(turn, static_cast<BoardPhase>(random() % 4), static_cast<uint32_t>(random() % 16));
  slot.claimed = random() % 2 == 0 ? random() : board_count(turn, random() % 4);
  slot.folded = random() % 2 == 0 ? random() : board_count(turn, random() % 4);
  slot.overdue = random() % 2 == 0 ? random() : board_count(turn, 1);
  BoardEntry& entry = slot.entries[random() % 3];
  auto* bytes = reinterpret_cast<unsigned char*>(&entry.request);
  for (int i = 0; i < 8; ++i)
    bytes[random() % sizeof(Request)] = static_cast<unsigned char>(random());
  entry.request.slot = static_cast<uint32_t>(random() % 300);
  entry.request.verb = static_cast<uint8_t>(random() % 7);
  entry.started_ns = static_cast<int64_t>(random());
  entry.ring_head = static_cast<uint32_t>(random());
  entry.flags = static_cast<uint32_t>(random() % 5);
  entry.ready = static_cast<uint32_t>(random() % 3);
  entry.holding = static_cast<uint32_t>(random() % 3);
  trainer.board().calls.fetch_add(1);
  if (random() % 16 == 0) trainer.board().in_use = static_cast<uint32_t>(random());
}

TEST(BoardGarbage, NeverCrashesOrStopsTheWorker) {
  struct Job : BoardTest {
    void TestBody() override {}
    void play(std::mt19937_64& random) {
      for (int turn = 0; turn < 200; ++turn) {
        for (int i = 0; i < 5; ++i) scramble(random, trainer(0));
        trainer(static_cast<uint32_t>(random() % 3)).ring();
        if (turn == 150) trainer(1).hang_up();
        loop_.turn(Clock::now());
        for (uint32_t rank = 0; rank < 3; ++rank)
          for (const OpRequest& request : std::exchange(events(rank).requests, {}))
            if (events(rank).ends == 0) session(rank).complete(request.slot, {});
      }
    }
  };
  std::mt19937_64 random(11);
  for (int round = 0; round < 50; ++round) Job().play(random);
}

// A trainer that brings the next as soon as one is taken does not keep the worker from its other
// work.
TEST_F(BoardTest, CallsWithoutEndAreAnsweredInTurns) {
  uint64_t number = 0;
  const auto bring = [&] {
    arrive(0, number, 1);
    divert(number);
  };
  events(0).then = [&] {
    session(0).complete(1, {});
    if (++number < 10'000) bring();
  };
  bring();
  trainer(0).ring();
  drain(loop_);
  EXPECT_GT(number, 0u);
  EXPECT_LT(number, 100u);
}

}  // namespace
}  // namespace tutti

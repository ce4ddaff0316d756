// What a trainer may write on the board: anything. It harms its own job at most.
#include <random>

#include "tests/session/board.h"

namespace tutti {
namespace {

using testing::HasSubstr;

TEST_F(BoardTest, AnInvalidEntryFailsOnlyItsRank) {
  arrive(0, 0).request.collective = 200;
  arrive(1, 0).arrived = 0xdeadbeef;
  arrive(2, 0).started_ns = INT64_MIN;
  call(0);
  drain(loop_);
  ASSERT_EQ(taken_of(0), Numbers{0});
  EXPECT_EQ(taken_of(1), Numbers{}) << "it arrived at another call";
  ASSERT_EQ(taken_of(2), Numbers{0});
  EXPECT_THAT(events(0).requests[0].invalid.message(), HasSubstr("unknown collective 200"));
  EXPECT_EQ(events(0).requests[0].invalid.culprit(), (Culprit{0, "here"}));
  EXPECT_TRUE(events(2).requests[0].invalid.ok());
  EXPECT_EQ(events(2).requests[0].started, std::nullopt);
  for (uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(events(rank).ends, 0);
}

TEST_F(BoardTest, AStartThatIsNotInThePastIsIgnored) {
  const int64_t later_ns = ns_ago(-Millis(3'600'000));
  uint64_t number = 0;
  for (const int64_t started_ns : {INT64_MIN, INT64_C(-1), INT64_C(0), later_ns, INT64_MAX}) {
    arrive(0, number).started_ns = started_ns;
    call(number);
    drain(loop_);
    ASSERT_EQ(events(0).requests.size(), number + 1);
    EXPECT_EQ(events(0).requests[number].started, std::nullopt) << started_ns;
    ++number;
  }
}

// Blocks that the tensors do not have: how many there are is what the requests say.
TEST_F(BoardTest, BlocksThatAreNoneAreNotFolded) {
  const uint8_t collectives[] = {TUTTI_ALL_REDUCE, TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER,
                                 TUTTI_BARRIER};
  uint64_t number = 0;
  for (const uint8_t collective : collectives)
    for (const uint32_t first : {1u, 3u, 1u << 20, board::kBlocksMax - 1}) {
      Request request = request_of(number, 0);
      request.collective = collective;
      request.out_offset = kArenaOffset + 4096;
      for (uint32_t rank = 0; rank < 3; ++rank) {
        std::memset(trainer(rank).at(kArenaOffset), 0, kTestSegmentBytes - kArenaOffset);
        arrive(rank, number, request);
      }
      slot(number).blocks = pack(board::Count{1, board::kBlocksMax});
      slot(number).claimed =
          pack(board::Count{1, first == 1 && collective != TUTTI_ALL_REDUCE ? 3 : first});
      slot(number).folded = pack(board::Count{1, 0});
      trainer(0).set_word(number, Phase::folding, 3);
      call(number);
      drain(loop_);
      EXPECT_EQ(slot(number).folded.load(), pack(board::Count{1, 0}))
          << int{collective} << " " << first;
      ++number;
    }
}

// Times that no clock shows: the claims of an operation past its deadline would be stopped at once.
TEST_F(BoardTest, InvalidTimestampsAreIgnored) {
  begin_folding(0);
  entry(0, 2).holding = 1;
  const auto call_after = [&](int64_t started_ns) {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      entry(0, rank).started_ns = started_ns;
      entry(0, rank).request.timeout_ms = 1;
    }
    call(0);
    drain(loop_);
    return board::unpack_count(slot(0).claimed.load());
  };
  for (const int64_t started_ns : {INT64_MAX, INT64_MIN, int64_t{0}, int64_t{-1}})
    EXPECT_EQ(call_after(started_ns), (board::Count{1, 0})) << started_ns;
  turn_for(Millis(350));  // Longer than ranks may fold after a deadline.
  EXPECT_FALSE(is_over(0));
  EXPECT_TRUE(told_.stuck.empty());
  EXPECT_EQ(call_after(ns_ago(Millis(50))), (board::Count{1, board::kNoMoreBlocks}));
  ASSERT_TRUE(turn_until_over(0));
  EXPECT_EQ(told_.stuck.size(), 1u);
}

void scramble(std::mt19937_64& random, FakeTrainer& trainer) {
  const auto number = random() % (2 * kBoardSlots);
  BoardSlot& slot = trainer.area().slot_of(number);
  const auto generation = static_cast<uint32_t>(random() % 4 == 0 ? random() : 1 + random() % 2);
  const auto count = [&] {
    return random() % 4 == 0 ? random()
                             : pack(board::Count{generation, static_cast<uint32_t>(random() % 4)});
  };
  slot.claimed = count();
  slot.folded = count();
  slot.blocks = count();
  BoardEntry& entry = trainer.write(board::number_of(generation, number % kBoardSlots),
                                    all_reduce_request(), static_cast<uint32_t>(random() % 3));
  auto* bytes = reinterpret_cast<unsigned char*>(&entry.request);
  for (int i = 0; i < 8; ++i)
    bytes[random() % sizeof(Request)] = static_cast<unsigned char>(random());
  entry.request.collective = static_cast<uint8_t>(random() % (kCollectives + 1));
  entry.started_ns = static_cast<int64_t>(random());
  entry.ready = static_cast<uint32_t>(random() % 3);
  entry.holding = static_cast<uint32_t>(random() % 3);
  slot.word = pack(board::SlotWord{generation, static_cast<board::Phase>(random() % 6),
                                   random() % 2 == 0, static_cast<uint32_t>(random() % 16)});
  trainer.set_called(number);
  if (random() % 16 == 0) trainer.area().header().ranks_decide = static_cast<uint32_t>(random());
  if (random() % 16 == 0) trainer.area().settled(1) = random();
}

struct GarbageJob : BoardTest {
  void TestBody() override {}

  // Returns how many requests came.
  size_t play(std::mt19937_64& random) {
    size_t requests = 0;
    for (int turn = 0; turn < 200; ++turn) {
      for (int i = 0; i < 5; ++i) scramble(random, trainer(0));
      trainer(static_cast<uint32_t>(random() % 3)).ring();
      if (turn == 150) trainer(1).hang_up();
      loop_.run_once(Clock::now());
      for (uint32_t rank = 0; rank < 3; ++rank)
        for (const Call& request : std::exchange(events(rank).requests, {})) {
          ++requests;
          if (!board_->let_ranks_fold({0, request.number}))
            board_->complete({0, request.number}, request.invalid);
        }
    }
    EXPECT_EQ(events(0).ends + events(2).ends, 0);
    EXPECT_EQ(events(1).ends, 1);
    return requests;
  }
  // The ranks recover, at the last number there is: what they said before counts.
  void expect_good_service() {
    const uint64_t number = board::number_of(UINT32_MAX, kBoardSlots - 1);
    turn_for(Millis(50));
    for (uint32_t rank = 0; rank < 3; ++rank)
      for (const Call& late : std::exchange(events(rank).requests, {}))
        board_->complete({0, late.number}, {});
    slot(number).word = pack(board::SlotWord{UINT32_MAX, Phase::open, false, 0});
    for (const uint32_t rank : {0, 2}) {
      events(rank).requests.clear();
      arrive(rank, number).holding = 0;
    }
    call(number);
    ASSERT_TRUE(await(loop_, [&] { return taken_of(2) == Numbers{number}; }));
    EXPECT_EQ(taken_of(0), Numbers{number});
    EXPECT_TRUE(events(0).requests[0].invalid.ok());
    board_->complete({0, number}, unavailable("rank 1 is gone", {1, "here"}));
    EXPECT_TRUE(trainer(0).has_failed(number));
    EXPECT_STREQ(failure(number).message, "rank 1 is gone");
  }
};

TEST(BoardGarbage, NeverCrashesOrStopsTheWorker) {
  std::mt19937_64 random(11);
  const int before = open_descriptors();
  for (int round = 0; round < 50; ++round) {
    GarbageJob job;
    EXPECT_GT(job.play(random), 0u);
    job.expect_good_service();
  }
  EXPECT_EQ(open_descriptors(), before);
}

// All slots say other numbers all the time, and no verdict comes: what is handed on is bounded.
TEST_F(BoardTest, WhatIsHandedOnIsBounded) {
  for (uint64_t generation = 0; generation < 50; ++generation) {
    for (uint64_t n = 0; n < kBoardSlots; ++n) {
      const uint64_t number = generation * kBoardSlots + n;
      arrive(0, number);
      trainer(0).set_word(number, Phase::called, 1);
      trainer(0).set_called(number);
    }
    trainer(0).ring();
    drain(loop_);
  }
  EXPECT_EQ(events(0).requests.size(), kBoardSlots);
}

// Garbage that the worker folds, without end, keeps it from nothing else.
TEST_F(BoardTest, FoldingWithoutEndKeepsTheWorkerFromNothing) {
  Request request = request_of(0, 0);
  request.count = kBoardBlockBytes / sizeof(float);
  request.out_offset = kArenaOffset + kBoardBlockBytes;
  for (uint64_t number = 0; number < 8; ++number) {
    for (uint32_t rank = 0; rank < 3; ++rank) arrive(rank, number, request);
    slot(number).blocks = pack(board::Count{1, 1 << 20});
    slot(number).folded = pack(board::Count{1, 0});
    trainer(0).set_word(number, Phase::folding, 3);
  }
  Served neighbour(loop_);
  for (uint64_t i = 0; i < 100; ++i) {
    for (uint64_t number = 0; number < 8; ++number) {
      slot(number).claimed = pack(board::Count{1, 0});
      trainer(0).call(number);
    }
    neighbour.events.requests.clear();
    neighbour.trainer.submit(i, all_reduce_request());
    ASSERT_TRUE(await(loop_, [&] { return neighbour.events.requests.size() == 1; }));
    neighbour.board->complete({0, i}, {});
    ASSERT_TRUE(neighbour.trainer.is_done(i));
  }
  EXPECT_GT(board::unpack_count(slot(0).folded.load()).blocks, 0u);
}

// A trainer that brings the next as soon as one is taken does not keep the worker from its other
// work.
TEST_F(BoardTest, CallsWithoutEndAreAnsweredInTurns) {
  uint64_t number = 0;
  const auto bring = [&] {
    arrive(0, number);
    call(number);
  };
  events(0).then = [&] {
    board_->complete({0, number}, {});
    if (++number < 10'000) bring();
  };
  bring();
  drain(loop_);
  EXPECT_GT(number, 0u);
  EXPECT_LT(number, 100u);
}

// The same where each call brings an earlier one that was not called to light: the worker looks
// again, but not for ever.
TEST_F(BoardTest, LooksThatLeadToOthersAreTakenInTurns) {
  uint64_t number = 0;
  const auto bring = [&] {
    arrive(0, number);
    arrive(0, number + 1);
    call(number + 1);
  };
  events(0).then = [&] {
    board_->complete({0, number}, {});
    if (++number % 2 == 0 && number < 10'000) bring();
  };
  bring();
  drain(loop_);
  EXPECT_GT(number, 0u);
  EXPECT_LT(number, 1000u);
}

// Operations that nobody waits for, and that the worker folds.
class HelpTest : public BoardTest {
 protected:
  static constexpr uint64_t kCount = 20 * kBoardBlockBytes / sizeof(float) + 5;  // 21 blocks.
  HelpTest() : BoardTest(3, uint64_t{8} << 20) {}

  void begin(uint64_t number, const std::function<Request(uint32_t)>& request_of, uint32_t blocks) {
    for (uint32_t rank = 0; rank < 3; ++rank) arrive(rank, number, request_of(rank));
    slot(number).blocks = pack(board::Count{1, blocks});
    slot(number).folded = slot(number).claimed = pack(board::Count{1, 0});
    trainer(0).set_word(number, Phase::folding, 3);
    call(number);
  }
  void begin_sums(uint64_t number, uint8_t flags = 0) {
    begin(
        number, [&](uint32_t rank) { return fill_all_reduce(rank, kCount, flags); }, 21);
  }
};

// What ranks asked for is read once: that they write over it meanwhile changes nothing.
TEST_F(HelpTest, RequestsAreReadOnce) {
  begin_sums(0);
  loop_.run_once(Clock::now());
  ASSERT_FALSE(is_over(0)) << "all in one go";
  entry(0, 1).request.count = 1;
  ASSERT_TRUE(turn_until_over(0));
  expect_sums(kCount);
}

// One whose claims begin again all the time does not keep the worker from the others.
TEST_F(HelpTest, OneThatNeverEndsKeepsNoOtherFromItsEnd) {
  Request endless = request_of(0, 0);
  endless.in_offset = endless.out_offset = kArenaOffset + 44 * kBoardBlockBytes;
  endless.count = 16 * kBoardBlockBytes / sizeof(float);
  begin(
      0, [&](uint32_t) { return endless; }, 1 << 20);
  begin_sums(1);
  for (int turn = 0; turn < 100 && !is_over(1); ++turn) {
    slot(0).claimed = slot(0).folded = pack(board::Count{1, 0});
    loop_.run_once(Clock::now());
  }
  ASSERT_TRUE(is_over(1));
  EXPECT_FALSE(is_over(0));
  expect_sums(kCount);
}

// Past its deadline, but nobody is to blame: its blocks are there for those who fold them.
TEST_F(HelpTest, WhatIsOverdueWithoutACulpritIsFolded) {
  begin_sums(0, kRequestBlocking);
  drain(loop_);
  EXPECT_FALSE(is_over(0)) << "its ranks fold it";
  start_ago(0, Millis(5001));
  call(0);
  ASSERT_TRUE(turn_until_over(0));
  EXPECT_TRUE(trainer(0).is_done(0));
  expect_sums(kCount);
}

}  // namespace
}  // namespace tutti

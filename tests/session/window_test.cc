// The worker's side of windows: tensors that pass block by block to other hosts.
#include "tests/session/board.h"

namespace tutti {
namespace {

constexpr uint32_t kBlocks = 3;

// Ranks 0 and 1 are here, 2 is on another host.
class WindowTest : public BoardTest {
 protected:
  WindowTest() : BoardTest(2, uint64_t{8} << 20, 1) {}

  // A tensor of kBlocks blocks through a window.
  static Request staged() {
    Request request = request_of(0, kRequestStaged | kRequestBlocking);
    request.count = kBlocks * kBoardBlockBytes / sizeof(float);
    request.out_offset = request.in_offset = kArenaOffset;
    return request;
  }
  // A tensor with blocks, in kBlocks rows.
  static Request in_rows() {
    Request request = staged();
    request.collective = TUTTI_ALL_GATHER;
    const Blocks blocks{Collective::all_gather, 0, 3};
    request.count =
        kBlocks * staged_rows_between_hosts(blocks, 0, Dtype::f32, 1, kTestWindowBytes).part;
    return request;
  }
  void fill(uint32_t rank, uint64_t number, uint32_t blocks) {
    entry(number, rank).ready = blocks;
    call(number);
    drain(loop_);
  }
};

TEST_F(WindowTest, TheWorkerLearnsWhatWindowsHold) {
  for (const uint32_t rank : {0, 1}) arrive(rank, 0, staged());
  call(0);
  drain(loop_);
  ASSERT_EQ(taken_of(0), Numbers{0});
  ASSERT_EQ(taken_of(1), Numbers{0});
  const Call& taken = events(1).requests[0];
  EXPECT_TRUE(taken.invalid.ok()) << taken.invalid.to_string();
  EXPECT_EQ(taken.window_bytes, kTestWindowBytes);
  told_.filled.clear();
  fill(1, 0, 2);
  EXPECT_EQ(taken.filled(), 2u);
  EXPECT_EQ(events(0).requests[0].filled(), 0u);
  EXPECT_EQ(told_.filled, Numbers{0}) << "once for all ranks";
  board_->release_window({0, 0}, 1);
  EXPECT_EQ(slot(0).passed.load(), pack(board::Count{1, 1}));
}

// Other hosts may have used the part that was written; the rest is lost, so the epoch ends.
TEST_F(WindowTest, WhoDiesWithItsWindowHalfFilledEndsTheEpoch) {
  for (const uint32_t rank : {0, 1}) arrive(rank, 0, staged());
  fill(1, 0, kBlocks - 1);
  trainer(1).hang_up();
  ASSERT_TRUE(await(loop_, [&] { return events(1).ends == 1; }));
  ASSERT_EQ(told_.stuck.size(), 1u);
  EXPECT_EQ(told_.stuck[0].culprit(), (Culprit{1, "here"}));
}

TEST_F(WindowTest, WhoDiesWithAllInItsWindowEndsNothing) {
  for (const uint32_t rank : {0, 1}) arrive(rank, 0, staged());
  fill(1, 0, kBlocks);
  trainer(1).hang_up();
  ASSERT_TRUE(await(loop_, [&] { return events(1).ends == 1; }));
  EXPECT_TRUE(told_.stuck.empty());
}

// A rank settles an operation once it has copied all results out.
TEST_F(WindowTest, AWindowOfResultsIsUsedAgainOnceAllHaveSettled) {
  const auto window_of = [this](uint64_t number) {
    for (const uint32_t rank : {0, 1}) arrive(rank, number, staged());
    call(number);
    drain(loop_);
    return board_->result_window({0, number}, 8192);
  };
  const std::byte* first = window_of(0);
  ASSERT_NE(first, nullptr);
  const board::Count told = board::unpack_count(slot(0).results.load());
  EXPECT_EQ(told.generation, 1u);
  const std::byte* second = window_of(1);
  const auto there = static_cast<int64_t>(board::unpack_count(slot(1).results.load()).blocks);
  const int64_t apart =
      (there - static_cast<int64_t>(told.blocks)) * static_cast<int64_t>(kResultsMultiple);
  EXPECT_EQ(second - first, apart);
  trainer(0).area().settled(0).store(1);
  const std::byte* third = window_of(2);
  EXPECT_NE(third, first) << "rank 1 may copy from there";
  trainer(0).area().settled(1).store(1);
  EXPECT_EQ(window_of(3), first);
  board_->complete({0, 3}, aborted("for all"));
  EXPECT_EQ(board_->result_window({0, 3}, 8192), nullptr);
}

TEST_F(WindowTest, WithoutRoomThereIsNoWindowOfResults) {
  for (const uint32_t rank : {0, 1}) arrive(rank, 0, staged());
  call(0);
  drain(loop_);
  EXPECT_EQ(board_->result_window({0, 0}, kWireBytes + 1), nullptr);
  EXPECT_EQ(board::unpack_count(slot(0).results.load()).generation, 0u);
}

TEST_F(WindowTest, RowsAreFilledAsBlocksAre) {
  for (const uint32_t rank : {0, 1}) arrive(rank, 0, in_rows());
  call(0);
  drain(loop_);
  const Call& taken = events(1).requests.at(0);
  EXPECT_TRUE(taken.invalid.ok()) << taken.invalid.to_string();
  EXPECT_EQ(taken.rows.rows(), kBlocks);
  EXPECT_EQ(taken.in - taken.out, static_cast<ptrdiff_t>(taken.rows.part * sizeof(float)))
      << "as in place: the block of rank 1 is the second";
  fill(1, 0, kBlocks - 1);
  EXPECT_EQ(taken.filled(), kBlocks - 1);
  EXPECT_TRUE(told_.stuck.empty());
  trainer(1).hang_up();
  ASSERT_TRUE(await(loop_, [&] { return events(1).ends == 1; }));
  ASSERT_EQ(told_.stuck.size(), 1u);
  EXPECT_EQ(told_.stuck[0].culprit(), (Culprit{1, "here"}));
}

TEST_F(WindowTest, WhoDiesWithAllInItsRowsEndsNothing) {
  for (const uint32_t rank : {0, 1}) arrive(rank, 0, in_rows());
  fill(1, 0, kBlocks);
  trainer(1).hang_up();
  ASSERT_TRUE(await(loop_, [&] { return events(1).ends == 1; }));
  EXPECT_TRUE(told_.stuck.empty());
}

// The slot holds an older request of it, with a window that was never filled: it failed.
TEST_F(WindowTest, ARequestOfAnEarlierTurnIsNoWindow) {
  for (const uint32_t rank : {0, 1}) arrive(rank, 0, staged());
  call(0);
  drain(loop_);
  board_->complete({0, 0}, aborted("for all"));
  told_.filled.clear();
  arrive(0, kBoardSlots);
  call(kBoardSlots);
  drain(loop_);
  ASSERT_EQ(taken_of(0), (Numbers{0, kBoardSlots}));
  EXPECT_EQ(told_.filled, Numbers{});
  trainer(1).hang_up();
  ASSERT_TRUE(await(loop_, [&] { return events(1).ends == 1; }));
  EXPECT_TRUE(told_.stuck.empty()) << "who has not arrived has brought nothing";
}

}  // namespace
}  // namespace tutti

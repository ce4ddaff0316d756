// The worker's side of shared folds: what ranks do, what it does by itself, and what happens to
// folds of operations that are cancelled and of ranks that die or stop.
#include "daemon/session/fold_sharing.h"

#include "tests/session/board.h"

namespace tutti {
namespace {

constexpr uint64_t kCount = 64 * 1024;  // Floats: two blocks a rank.
constexpr uint64_t kReadBytes = 2 * kCount * sizeof(float);

// Ranks 0 and 1 are here, 2 is on another host. Operation 0 has arrived here, and waits.
class FoldSharingTest : public BoardTest {
 protected:
  // What a rank's procedures need.
  struct Doorbell {
    FakeTrainer& trainer;
    void ring() const { trainer.ring(); }
  };
  using Memory = board::SlotMemory<Doorbell>;

  FoldSharingTest() : BoardTest(2, uint64_t{8} << 20, 1) {}

  void begin(uint8_t flags = kRequestBlocking) {
    for (const uint32_t rank : {0, 1}) arrive(rank, 0, fill_all_reduce(rank, kCount, flags));
    call(0);
    drain(loop_);
    ASSERT_EQ(taken_of(1), Numbers{0});
    helpers_ = board_->helpers_of({0, 0});
    if (helpers_ != nullptr) helpers_->begin([this] { ++resumes_; });
  }
  // The sum of both ranks' inputs, to both outputs.
  std::shared_ptr<const int> start() {
    const Call& first = events(0).requests[0];
    const Call& second = events(1).requests[0];
    const std::vector<const std::byte*> from = {first.in, second.in};
    const std::vector<Target> to = {{first.out, Dtype::f32}, {second.out, Dtype::f32}};
    const Folds folds = local_folds({StrategyKind::centralized}, 2);
    return helpers_->start({.folds = folds, .contributions = from, .targets = to, .count = kCount},
                           {StrategyKind::centralized});
  }

  template <template <class> class Procedure, class... Args>
  auto run(uint32_t rank, const Args&... args) {
    const board::View view = trainer(rank).view();
    const board::GroupArea group{trainer(rank).area(), 0, local_ranks_};
    Doorbell doorbell{trainer(rank)};
    Memory memory(view, group, 0, doorbell);
    Procedure<Memory> procedure(1, args...);
    board::run(procedure, memory);
    return procedure;
  }
  auto claim(uint32_t rank) { return run<board::ClaimFold>(rank, rank, board::FoldWord()); }
  void finish(uint32_t rank, uint32_t index) {
    const std::vector<board::SegmentView> segments = {{trainer(0).at(0), trainer(0).bytes()},
                                                      {trainer(1).at(0), trainer(1).bytes()}};
    const SharedFold& fold = trainer(rank).view().folds().folds[index];
    const FoldHead head = fold.head;
    const board::FoldMemory memory = {segments, {trainer(rank).view().wire(), kWireBytes}};
    EXPECT_TRUE(board::run_shared(head, fold.places, memory, choose_kernel()));
    run<board::FinishFold>(rank, index, board::FoldWord{board::FoldState::held, rank, 0, 0},
                           head.first, head.number);
  }
  void turn_until_settled() {
    ASSERT_TRUE(await(loop_, [&] { return helpers_->settled(); }));
    drain(loop_);
  }

  const std::vector<uint32_t> local_ranks_ = {0, 1};
  std::shared_ptr<FoldHelpers> helpers_;
  int resumes_ = 0;
};

TEST_F(FoldSharingTest, RanksFoldAndTheOperationIsResumed) {
  begin();
  ASSERT_NE(helpers_, nullptr);
  const auto left = start();
  ASSERT_NE(left, nullptr);
  const int blocks = *left;
  EXPECT_GE(blocks, 2);
  EXPECT_EQ(slot(0).shared.load(), pack(board::Count{1, static_cast<uint32_t>(blocks)}));
  for (int block = 0; block < blocks; ++block) {
    const auto claimed = claim(static_cast<uint32_t>(block % 2));
    ASSERT_TRUE(claimed.claimed());
    EXPECT_EQ(helpers_->busy_ranks(), std::vector<int>{block % 2});
    finish(static_cast<uint32_t>(block % 2), claimed.index());
  }
  EXPECT_FALSE(claim(0).claimed()) << "all are done";
  drain(loop_);
  board_->poll();
  EXPECT_EQ(*left, 0);
  EXPECT_EQ(resumes_, 1);
  expect_sums(kCount);
  EXPECT_EQ(board_->fold_counts().by_ranks, kReadBytes);
  EXPECT_EQ(board_->fold_counts().by_worker, 0u);
}

TEST_F(FoldSharingTest, TheWorkerFoldsWhatNobodyClaims) {
  begin();
  ASSERT_NE(helpers_, nullptr);
  const auto left = start();
  ASSERT_NE(left, nullptr);
  ASSERT_TRUE(await(loop_, [&] { return resumes_ == 1; }));
  EXPECT_EQ(*left, 0);
  expect_sums(kCount);
  EXPECT_EQ(board_->fold_counts().by_worker, kReadBytes);
}

// A rank wakes up for a fold: the word that it sleeps on has changed.
TEST_F(FoldSharingTest, SleepersAreWoken) {
  begin();
  trainer(0).area().slot_of(0).word.store(
      board::pack(board::with_sleeper(board::unpack(slot(0).word.load()))));
  ASSERT_NE(start(), nullptr);
  EXPECT_FALSE(word(0).asleep);
  EXPECT_EQ(word(0).wakes, 1u);
}

TEST_F(FoldSharingTest, WhereNoneWaitsOrMemoryIsElsewhereTheCallerFolds) {
  begin(0);
  EXPECT_EQ(helpers_, nullptr);
  helpers_ = nullptr;
  for (const uint32_t rank : {0, 1})
    arrive(rank, 1, fill_all_reduce(rank, kCount, kRequestBlocking));
  call(1);
  drain(loop_);
  const auto helpers = board_->helpers_of({0, 1});
  ASSERT_NE(helpers, nullptr);
  const std::vector<float> elsewhere(kCount);
  const std::byte* from = reinterpret_cast<const std::byte*>(elsewhere.data());
  const Target to{events(0).requests[1].out, Dtype::f32};
  const Folds folds = local_folds({StrategyKind::centralized}, 1);
  EXPECT_EQ(helpers->start(
                {.folds = folds, .contributions = {&from, 1}, .targets = {&to, 1}, .count = kCount},
                {StrategyKind::centralized}),
            nullptr);
}

TEST_F(FoldSharingTest, AFoldThatIsHeldDelaysTheEndOfACancelledOperation) {
  begin();
  ASSERT_NE(start(), nullptr);
  const auto claimed = claim(1);
  ASSERT_TRUE(claimed.claimed());
  helpers_->cancel();
  EXPECT_FALSE(claim(0).claimed()) << "the others are taken back";
  EXPECT_FALSE(helpers_->settled());
  finish(1, claimed.index());
  turn_until_settled();
  EXPECT_EQ(resumes_, 1);
  EXPECT_EQ(start(), nullptr);
  EXPECT_TRUE(told_.stuck.empty());
}

TEST_F(FoldSharingTest, ARankThatStoppedWithAFoldEndsTheEpochByName) {
  begin();
  ASSERT_NE(start(), nullptr);
  ASSERT_TRUE(claim(1).claimed());
  helpers_->cancel();
  turn_until_settled();
  ASSERT_EQ(told_.stuck.size(), 1u);
  EXPECT_EQ(told_.stuck[0].culprit(), (Culprit{1, "here"}));
  EXPECT_EQ(resumes_, 1);
}

TEST_F(FoldSharingTest, ARankThatDiesWithAFoldEndsTheEpoch) {
  begin();
  ASSERT_NE(start(), nullptr);
  ASSERT_TRUE(claim(1).claimed());
  trainer(1).hang_up();
  ASSERT_TRUE(await(loop_, [&] { return events(1).ends == 1; }));
  ASSERT_EQ(told_.stuck.size(), 1u);
  EXPECT_EQ(told_.stuck[0].culprit(), (Culprit{1, "here"}));
  helpers_->cancel();
  EXPECT_TRUE(helpers_->settled());
}

TEST_F(FoldSharingTest, ARankThatTakesFoldsBackEndsTheEpoch) {
  begin();
  ASSERT_NE(start(), nullptr);
  EXPECT_TRUE(
      run<board::TakeFoldBack>(0, uint32_t{0}, board::FoldWord{board::FoldState::ready}, 0u, 0u)
          .taken());
  board_->poll();
  EXPECT_EQ(told_.stuck.size(), 1u);
}

// What it wrote there may change at any moment.
TEST_F(FoldSharingTest, TheWorkerFoldsWhatItPublishedWhateverTheBoardSays) {
  begin();
  const auto left = start();
  ASSERT_NE(left, nullptr);
  BoardFolds& folds = trainer(0).view().folds();
  for (int block = 0; block < *left; ++block) {
    folds.folds[block].head.count = UINT64_MAX;
    folds.folds[block].head.sources = kLocalRanksMax;
  }
  ASSERT_TRUE(await(loop_, [&] { return resumes_ == 1; }));
  expect_sums(kCount);
}

TEST_F(FoldSharingTest, WhoLeavesLeavesTheFoldsToTheWorker) {
  begin();
  const auto left = start();
  ASSERT_NE(left, nullptr);
  board_->remove_rank(1, Status());
  EXPECT_EQ(*left, 0);
  expect_sums(kCount);
}

// The indices are used again: there are more folds than these at once.
TEST_F(FoldSharingTest, ManyFoldsInARow) {
  begin();
  for (uint32_t round = 0; round < kSharedFolds; ++round) {
    const auto left = start();
    ASSERT_NE(left, nullptr) << round;
    for (auto claimed = claim(round % 2); claimed.claimed(); claimed = claim(round % 2))
      finish(round % 2, claimed.index());
    board_->poll();
    ASSERT_EQ(*left, 0);
  }
  expect_sums(kCount);
}

}  // namespace
}  // namespace tutti

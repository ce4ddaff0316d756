// Staged operations: when the window is released, and when their slots are settled.
#include "client/operations/staged_op.h"

#include <sys/mman.h>

#include <atomic>
#include <csignal>

#include "tests/client/two_ranks.h"

namespace tutti::client {
namespace {

// Calls `on_use` at the first access to the memory, on the thread that accesses it.
class Trap {
 public:
  Trap(void* memory, size_t bytes, int allowed, std::function<void()> on_use)
      : memory_(memory), bytes_(bytes), on_use_(std::move(on_use)) {
    now_ = this;
    struct sigaction action {};
    action.sa_handler = [](int) { now_->open(); };
    EXPECT_EQ(sigaction(SIGSEGV, &action, &before_), 0);
    EXPECT_EQ(mprotect(memory, bytes, allowed), 0);
  }
  Trap(const Trap&) = delete;
  Trap& operator=(const Trap&) = delete;
  ~Trap() { sigaction(SIGSEGV, &before_, nullptr); }

 private:
  void open() {
    on_use_();
    if (mprotect(memory_, bytes_, PROT_READ | PROT_WRITE) != 0) abort();
  }

  static inline Trap* now_ = nullptr;
  void* const memory_;
  const size_t bytes_;
  const std::function<void()> on_use_;
  struct sigaction before_ {};
};

constexpr size_t kPage = 4096;

// A rank's staged all_reduce of kCount floats that it has copied to its window.
struct StagedCall {
  explicit StagedCall(Rank& by) : rank(by) {
    window = rank.connection->own_memory().allocate(kWindowBlocks * kBoardBlockBytes);
    op.resources.blocks.push_back(rank.connection->own_memory().offset_of(window));
  }
  Status arrive() {
    Request request{};
    request.collective = TUTTI_ALL_REDUCE;
    request.flags = kRequestBlocking | kRequestStaged;
    request.count = kCount;
    request.in_offset = request.out_offset = rank.connection->own_memory().offset_of(window);
    request.timeout_ms = rank.timeout_ms;
    return rank.queue->submit(request, op);
  }

  Rank& rank;
  std::byte* window = nullptr;
  PendingOp op;
};

// Two ranks whose staged operation is folded, and has yet to be copied out.
class CopyingOut : public TwoRanksTest {
 protected:
  void fold_all() {
    ASSERT_TRUE(own_.arrive().ok() && other_.arrive().ok());
    for (Rank& rank : ranks_) rank.queue->set_ready(0, kBlocks, false);
    ASSERT_TRUE(queue(1).fold_blocks(0));
    ASSERT_EQ(word(0).phase, Phase::done);
  }
  // Rank 0 copies out. `on_copy` is called before the first byte.
  Status copy_out(std::function<void()> on_copy) {
    alignas(kPage) static std::array<std::byte, kCount * sizeof(float)> out;
    const Trap trap(out.data(), kPage, PROT_READ, std::move(on_copy));
    const TensorSides tensor{nullptr, out.data(), out.size()};
    own_.op.window.is_staging = true;
    StagedOp staged(queue(0), own_.op,
                    {{&tensor, 1}, own_.window, kWindowBlocks, kCount, Dtype::f32});
    return staged.run(Backoff(ranks_[0].connection->cores()));
  }
  uint64_t used() const { return ranks_[0].connection->own_memory().used_bytes(); }

  StagedCall own_{ranks_[0]};
  StagedCall other_{ranks_[1]};
};

// Another operation may get the window as soon as it is released; one that ranks have in common, as
// soon as all have settled.
TEST_F(CopyingOut, AWindowIsHeldUntilItsLastBlockIsCopiedOut) {
  ASSERT_NO_FATAL_FAILURE(fold_all());
  const uint64_t before = used();
  uint64_t used_at_copy = 0;
  uint64_t settled_at_copy = UINT64_MAX;
  const Status outcome = copy_out([&] {
    used_at_copy = used();
    settled_at_copy = area().settled(0).load();
  });
  EXPECT_TRUE(outcome.ok()) << outcome.to_string();
  EXPECT_EQ(used_at_copy, before);
  EXPECT_EQ(settled_at_copy, 0u);
  EXPECT_EQ(area().settled(0).load(), 1u) << "in the end";
  EXPECT_LT(used(), before) << "and not longer";
}

// The worker may use a common window again as soon as a rank has left.
TEST_F(CopyingOut, ARankThatLeavesMeanwhileHasNoResult) {
  ASSERT_NO_FATAL_FAILURE(fold_all());
  EXPECT_EQ(copy_out([&] { queue(0).cancel(Clock::now()); }).code(), Code::cancelled);
}

// A thread is about to release its block when the operation ends for all others. The slot must not
// be reused before that thread has written to it.
TEST_F(TwoRanksTest, ASlotIsKeptWhileAThreadOfTheRankFoldsThere) {
  PendingOp a;
  PendingOp b;
  begin_folding(a, b);
  std::atomic<bool> reached = false;
  std::atomic<bool> go = false;
  const auto in = reinterpret_cast<uintptr_t>(ranks_[0].in);
  const Trap trap(reinterpret_cast<void*>((in + kPage - 1) / kPage * kPage), kPage, PROT_NONE, [&] {
    reached = true;
    while (!go) sched_yield();
  });
  std::thread folding([&] { queue(0).fold_blocks(0, 1); });
  while (!reached) sched_yield();
  set_folded(0, kBlocks);
  EXPECT_TRUE(queue(1).poll(b));
  ASSERT_EQ(word(0).phase, Phase::done);
  queue(0).settle_finished();  // As another thread of the rank may do.
  EXPECT_EQ(area().settled(0).load(), 0u);
  go = true;
  folding.join();
  queue(0).settle_finished();
  EXPECT_EQ(area().settled(0).load(), 1u);
}

// While a thread copies into the window, no other thread settles its operation.
TEST_F(TwoRanksTest, ASlotIsKeptWhileItsCallIsStaged) {
  StagedCall own(ranks_[0]);
  own.op.window.is_staging = true;
  ASSERT_TRUE(own.arrive().ok());
  board_->set_ranks_decide(false);
  drain(loop_);
  board_->complete({0, 0}, unavailable("because"));
  queue(0).settle_finished();
  EXPECT_FALSE(queue(0).poll(own.op)) << "nor does who passes it, before it has copied out";
  EXPECT_EQ(area().settled(0).load(), 0u);
  own.op.window.is_staging = false;
  queue(0).settle_finished();
  EXPECT_EQ(area().settled(0).load(), 1u);
}

}  // namespace
}  // namespace tutti::client

// Ordinary memory's way through a window of the segment, at its end.
#include <sys/mman.h>

#include <atomic>
#include <csignal>

#include "client/stage.h"
#include "tests/client_board.h"

namespace tutti::client {
namespace {

// Memory whose first write is seen while it happens.
class Watched {
 public:
  Watched(size_t bytes, Connection& connection) : bytes_(bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    data_ = static_cast<std::byte*>(memory);
    now_ = this;
    connection_ = &connection;
    struct sigaction action {};
    action.sa_handler = [](int) { now_->on_write(); };
    EXPECT_EQ(sigaction(SIGSEGV, &action, &before_), 0);
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(data_, bytes_);
  }
  std::byte* data() const { return data_; }
  // Bytes of the segment in use at the write.
  uint64_t used_at_write() const { return used_at_write_; }

 private:
  void on_write() {
    if (mprotect(data_, bytes_, PROT_READ | PROT_WRITE) != 0) abort();
    used_at_write_ = connection_->used_bytes();
  }

  static inline Watched* now_ = nullptr;
  const size_t bytes_;
  std::byte* data_ = nullptr;
  Connection* connection_ = nullptr;
  uint64_t used_at_write_ = 0;
  struct sigaction before_ {};
};

// A rank's all_reduce of kCount floats through a window, from the window on.
struct StagedCall {
  explicit StagedCall(Rank& by) : rank(by) {
    window = rank.connection->allocate(kStageBlocks * kBoardBlockBytes);
    ticket.blocks.push_back(rank.connection->offset_of(window));
  }
  Outcome arrive() {
    Request request{};
    request.verb = TUTTI_ALL_REDUCE;
    request.flags = kRequestBlocking | kRequestStaged;
    request.count = kCount;
    request.in_offset = request.out_offset = rank.connection->offset_of(window);
    request.timeout_ms = rank.timeout_ms;
    return rank.calls->arrive(request, ticket);
  }

  Rank& rank;
  std::byte* window = nullptr;
  Ticket ticket;
};

// Another call may have the window as soon as it is released.
TEST_F(ClientBoardTest, AWindowIsHeldUntilItsLastBlockIsCopiedOut) {
  StagedCall own(ranks_[0]);
  StagedCall other(ranks_[1]);
  ASSERT_TRUE(own.arrive().ok() && other.arrive().ok());
  for (Rank& rank : ranks_) rank.calls->set_ready(0, kBlocks);
  ASSERT_TRUE(calls(1).help(0));
  ASSERT_EQ(word(0).phase, Phase::done) << "all is left to be copied out";
  const uint64_t used = ranks_[0].connection->used_bytes();
  const size_t bytes = kCount * sizeof(float);
  const Watched out(bytes, *ranks_[0].connection);
  const TensorSides tensor{nullptr, out.data(), bytes};
  Stage stage(calls(0), own.ticket, {{&tensor, 1}, own.window, kCount, Dtype::f32});
  EXPECT_TRUE(stage.run(Backoff(ranks_[0].connection->cores())).ok());
  EXPECT_EQ(out.used_at_write(), used);
  EXPECT_LT(ranks_[0].connection->used_bytes(), used) << "and not longer";
}

}  // namespace
}  // namespace tutti::client

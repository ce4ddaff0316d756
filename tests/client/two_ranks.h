// Fixture: two ranks of one host, with the client library's internals, and the worker's side
// of their board, in one process. For states that last too short a time to be produced from
// outside.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/operations/op_queue.h"
#include "tests/session/trainer.h"

namespace tutti::client {

using board::Phase;

inline constexpr uint64_t kCount = 2 * kBoardBlockBytes / sizeof(float) + 5;
inline constexpr uint32_t kBlocks = 3;  // Of kCount floats.

// One rank: its connection and operations, and the worker's end of its socket.
struct Rank {
  std::shared_ptr<Connection> connection;
  std::shared_ptr<OpQueue> queue;
  RecordedEvents events;
  std::unique_ptr<Trainer> at_worker;
  float* in = nullptr;
  float* out = nullptr;

  void set_up() {
    queue = std::make_shared<OpQueue>(*connection, 0, std::vector<uint32_t>{0, 1}, 2);
    connection->under_way().add(queue);
    in = reinterpret_cast<float*>(connection->own_memory().allocate(kCount * sizeof(float)));
    out = reinterpret_cast<float*>(connection->own_memory().allocate(kCount * sizeof(float)));
  }
  // Submits an all_reduce of `count` floats: `value`, `value` + 1, ..., `value` + 99, `value`, ...
  Status arrive(PendingOp& op, float value, uint64_t count = 1, uint8_t flags = kRequestBlocking) {
    for (uint64_t i = 0; i < count; ++i) in[i] = value + static_cast<float>(i % 100);
    Request request{};
    request.collective = TUTTI_ALL_REDUCE;
    request.flags = flags;
    request.count = count;
    request.in_offset = connection->own_memory().offset_of(in);
    request.out_offset = connection->own_memory().offset_of(out);
    request.timeout_ms = timeout_ms;
    return queue->submit(request, op);
  }
  uint32_t timeout_ms = 60'000;
};

class TwoRanksTest : public ::testing::Test {
 protected:
  TwoRanksTest() {
    Result<tutti::Fd> listener = listen_unix(path_, SOCK_STREAM, 0600);
    EXPECT_TRUE(listener.ok());
    std::vector<std::thread> joining;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      joining.emplace_back([this, rank] {
        const JoinTarget target{path_, "job", "", rank, 2, 30'000};
        const Status joined = Connection::open(target, ranks_[rank].connection);
        EXPECT_TRUE(joined.ok()) << joined.message();
      });
      admit(listener->get(), ranks_[rank]);  // One after the other.
    }
    serve();
    for (std::thread& one : joining) one.join();
    for (Rank& rank : ranks_) rank.set_up();
  }
  ~TwoRanksTest() override {
    for (Rank& rank : ranks_) rank.queue.reset();
    unlink(path_.c_str());
  }

  OpQueue& queue(uint32_t rank) { return *ranks_[rank].queue; }
  board::Area area() { return ranks_[0].connection->memory().view().area(0); }
  BoardSlot& slot(uint64_t number) { return area().slot_of(number); }
  board::SlotWord word(uint64_t number) { return board::unpack(slot(number).word.load()); }
  // Numbers of the requests that the worker received from a rank.
  std::vector<uint64_t> requests_of(uint32_t rank) {
    std::vector<uint64_t> numbers;
    for (const Call& request : ranks_[rank].events.requests) numbers.push_back(request.number);
    return numbers;
  }
  // Both ranks submit an operation of kBlocks blocks, none of which is folded.
  void begin_folding(PendingOp& a, PendingOp& b) {
    ASSERT_TRUE(ranks_[0].arrive(a, 1, kCount).ok());
    ASSERT_TRUE(ranks_[1].arrive(b, 2, kCount).ok());
    ASSERT_EQ(word(a.number).phase, Phase::folding);
  }
  // Sets the slot to: all blocks claimed, and `folded` of them folded.
  void set_folded(uint64_t number, uint32_t folded) {
    const uint32_t generation = board::generation_of(number);
    slot(number).claimed = pack(board::Count{generation, kBlocks});
    slot(number).folded = pack(board::Count{generation, folded});
  }

  // Gives each rank's requests to that rank's events.
  struct Told : RecordedEvents {
    explicit Told(std::array<Rank, 2>& ranks) : ranks_(ranks) {}
    void on_request(uint32_t rank, Call call) override {
      ranks_[rank].events.on_request(rank, std::move(call));
    }
    std::array<Rank, 2>& ranks_;
  };

  Loop loop_;
  Told told_{ranks_};
  std::shared_ptr<HostBoard> board_;
  std::array<Rank, 2> ranks_;

 private:
  void admit(int listener, Rank& rank) {
    tutti::Fd socket;
    ASSERT_TRUE(await(loop_, [&] {
      socket = tutti::Fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      return socket.valid();
    }));
    bool said = false;
    const HelloReader reader(loop_, socket.get(), Clock::now() + Millis(30'000),
                             [&](const Result<v1::Hello>& hello) { said = hello.ok(); });
    ASSERT_TRUE(await(loop_, [&] { return said; }));
    auto opened = Trainer::open(loop_, std::move(socket), rank.events);
    ASSERT_TRUE(opened.ok());
    rank.at_worker = *std::move(opened);
  }
  void serve() {
    const HostRanks here{"h", {{0, getpid()}, {1, getpid()}}, 2};
    auto made = HostBoard::make(loop_, here, {uint64_t{8} << 20}, 1, told_);
    EXPECT_TRUE(made.ok());
    board_ = *std::move(made);
    for (const uint32_t rank : {0, 1})
      EXPECT_TRUE(ranks_[rank].at_worker->welcome(board_, rank, 1, {"h", "h"}).ok());
  }

  const std::string path_ = ::testing::TempDir() + "client_board_" + std::to_string(getpid());
};

}  // namespace tutti::client

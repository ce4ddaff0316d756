// The welcomed ranks of a job on one board, to which their trainers write directly.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/session/trainer.h"

namespace tutti {

inline int64_t ns_ago(Millis ago) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             (Clock::now() - ago).time_since_epoch())
      .count();
}

using Numbers = std::vector<uint64_t>;

// For a staged tensor between hosts.
inline constexpr uint64_t kTestWindowBytes = 8 * kBoardBlockBytes;

// The ranks of a job that are on one host: all, but for the last ones where some are elsewhere.
class BoardTest : public testing::Test {
 protected:
  using Phase = board::Phase;

  explicit BoardTest(uint32_t ranks = 3, uint64_t segment_bytes = kTestSegmentBytes,
                     uint32_t elsewhere = 0) {
    const uint32_t world = ranks + elsewhere;
    HostRanks here{"here", {}, world};
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      served_.push_back(std::make_unique<Served>(loop_, socket_pair()));
      here.ranks.push_back({rank, getpid()});
    }
    auto made = HostBoard::make(loop_, here, {segment_bytes, kTestWindowBytes}, 7, told_);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    board_ = *std::move(made);
    std::vector<std::string> hosts(ranks, "here");
    hosts.resize(world, "there");
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_TRUE(served_[rank]->at_worker->welcome(board_, rank, 7, hosts).ok());
      served_[rank]->welcome = served_[rank]->trainer.join();
    }
  }

  FakeTrainer& trainer(uint32_t rank) { return served_[rank]->trainer; }
  RecordedEvents& events(uint32_t rank) { return served_[rank]->events; }
  uint32_t ranks() const { return static_cast<uint32_t>(served_.size()); }
  BoardSlot& slot(uint64_t number) { return trainer(0).area().slot_of(number); }
  BoardEntry& entry(uint64_t number, uint32_t rank) {
    return trainer(0).area().entry(number, rank);
  }
  board::SlotWord word(uint64_t number) { return trainer(0).word(number); }
  bool ranks_decide() { return trainer(0).area().header().ranks_decide.load() != 0; }

  // A float for each of some elements, in place of none: out of place, and waited for.
  static Request request_of(uint64_t number, uint8_t flags = kRequestBlocking) {
    Request request = all_reduce_request();
    request.count = 1 + number % 8;
    request.timeout_ms = 5000;
    request.flags = flags;
    return request;
  }
  // Writes the rank's entry and counts it in the word.
  BoardEntry& arrive(uint32_t rank, uint64_t number, const Request& request) {
    BoardEntry& entry = trainer(rank).write(number, request, rank);
    entry.started_ns = ns_ago(Millis(0));
    const board::SlotWord before = word(number);
    const bool fresh = before.generation != board::generation_of(number);
    trainer(0).set_word(number, fresh ? Phase::open : before.phase, fresh ? 1 : before.arrived + 1);
    return entry;
  }
  BoardEntry& arrive(uint32_t rank, uint64_t number, uint8_t flags = kRequestBlocking) {
    return arrive(rank, number, request_of(number, flags));
  }
  // A rank calls it, and rings.
  void call(uint64_t number) {
    if (word(number).phase == Phase::open)
      trainer(0).set_word(number, Phase::called, word(number).arrived);
    trainer(0).call(number);
  }
  // All have arrived and fold `blocks` blocks.
  void begin_folding(uint64_t number, uint32_t blocks = 1, uint8_t flags = kRequestBlocking) {
    Request request = request_of(number, flags);
    request.count = blocks * (kBoardBlockBytes / sizeof(float));
    for (uint32_t rank = 0; rank < ranks(); ++rank) arrive(rank, number, request);
    const uint32_t generation = board::generation_of(number);
    slot(number).blocks = pack(board::Count{generation, blocks});
    slot(number).folded = slot(number).claimed = pack(board::Count{generation, 0});
    trainer(0).set_word(number, Phase::folding, ranks());
  }
  void set_folded(uint64_t number, uint32_t blocks) {
    slot(number).folded = pack(board::Count{board::generation_of(number), blocks});
  }
  // As if every rank's call had begun that long ago.
  void start_ago(uint64_t number, Millis ago) {
    for (uint32_t rank = 0; rank < ranks(); ++rank) entry(number, rank).started_ns = ns_ago(ago);
  }
  bool is_over(uint64_t number) {
    return trainer(0).is_done(number) || trainer(0).has_failed(number);
  }
  bool turn_until_over(uint64_t number) {
    return await(loop_, [&] { return is_over(number); });
  }
  // Lets the loop turn for a while.
  void turn_for(Millis time) {
    const TimePoint limit = Clock::now() + time;
    await(loop_, [&] { return Clock::now() > limit; });
  }
  const BoardFailure& failure(uint64_t number) { return trainer(0).failure(number); }
  Numbers taken_of(uint32_t rank) {
    Numbers numbers;
    for (const Call& request : events(rank).requests) numbers.push_back(request.number);
    return numbers;
  }
  // An all_reduce of whole numbers that every rank can check.
  Request fill_all_reduce(uint32_t rank, uint64_t count, uint8_t flags) {
    auto* in = reinterpret_cast<float*>(trainer(rank).at(kArenaOffset));
    for (uint64_t i = 0; i < count; ++i) in[i] = static_cast<float>(i % 100 + rank);
    std::memset(trainer(rank).at(kArenaOffset + count * sizeof(float)), 0xff,
                count * sizeof(float));
    Request request = request_of(0, flags);
    request.count = count;
    request.out_offset = kArenaOffset + count * sizeof(float);
    return request;
  }
  void expect_sums(uint64_t count) {
    const uint32_t world = ranks();
    for (uint32_t rank = 0; rank < world; ++rank) {
      const auto* out =
          reinterpret_cast<const float*>(trainer(rank).at(kArenaOffset + count * sizeof(float)));
      for (uint64_t i = 0; i < count; ++i)
        ASSERT_EQ(out[i], static_cast<float>(world * (i % 100) + world * (world - 1) / 2))
            << "rank " << rank << ", element " << i;
    }
  }

  // Gives each rank's requests to that rank's events; records the rest.
  struct Told : RecordedEvents {
    explicit Told(std::vector<std::unique_ptr<Served>>& served) : served_(served) {}
    void on_request(uint32_t rank, Call call) override {
      served_[rank]->events.on_request(rank, std::move(call));
    }
    std::vector<std::unique_ptr<Served>>& served_;
  };

  Loop loop_;
  Told told_{served_};
  std::shared_ptr<HostBoard> board_;
  std::vector<std::unique_ptr<Served>> served_;
};

}  // namespace tutti

// Sessions of all ranks of a job that share a board, welcomed. Their trainers write on it by hand.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/session_trainer.h"

namespace tutti {

inline int64_t ns_ago(Millis ago) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             (Clock::now() - ago).time_since_epoch())
      .count();
}

// All ranks of a job that share a board, welcomed.
class BoardTest : public testing::Test {
 protected:
  explicit BoardTest(uint32_t ranks = 3) {
    std::vector<Session*> sessions;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      served_.push_back(std::make_unique<Served>(loop_, socket_pair()));
      sessions.push_back(served_.back()->session.get());
    }
    EXPECT_TRUE(share_board(loop_, sessions).ok());
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      served_[rank]->session->set_group(0, rank, ranks);
      EXPECT_TRUE(served_[rank]->session->welcome(7, std::vector<std::string>(ranks, "here")).ok());
      served_[rank]->welcome = served_[rank]->trainer.join();
    }
  }

  FakeTrainer& trainer(uint32_t rank) { return served_[rank]->trainer; }
  RecordedEvents& events(uint32_t rank) { return served_[rank]->events; }
  Session& session(uint32_t rank) { return *served_[rank]->session; }
  BoardHeader& board() { return trainer(0).board(); }
  BoardSlot& slot(uint64_t number) {
    return trainer(0).board_slot(static_cast<uint32_t>(number % kBoardSlots));
  }
  uint32_t ranks() const { return static_cast<uint32_t>(served_.size()); }

  // Writes the rank's entry and sets its bit. The request's slot and count tell it from others.
  BoardEntry& arrive(uint32_t rank, uint64_t number, uint32_t completion, uint32_t flags = 0,
                     BoardPhase phase = BoardPhase::open) {
    BoardEntry& entry = slot(number).entries[rank];
    entry.request = all_reduce_request(completion);
    entry.request.count = 1 + number % 8;
    entry.request.timeout_ms = 5000;
    entry.started_ns = ns_ago(Millis(0));
    entry.ring_head = trainer(rank).header().head.load();
    entry.flags = flags;
    entry.ready = 0;
    entry.holding = 0;
    trainer(rank).completion(completion).state = board_slot_word(SlotState::pending, number);
    const uint64_t word = slot(number).word.load();
    slot(number).word = board_word(turn_at(number), phase, arrived_of(word) | 1u << rank);
    return entry;
  }
  void divert(uint64_t number) {
    const uint64_t word = slot(number).word.load();
    slot(number).word = board_word(turn_of(word), BoardPhase::diverted, arrived_of(word));
    board().calls.fetch_add(1);
  }
  // All have arrived, the operation is folded.
  void fold(uint64_t number, uint32_t flags = 0) {
    for (uint32_t rank = 0; rank < ranks(); ++rank) arrive(rank, number, 9, flags);
    slot(number).word = board_word(turn_at(number), BoardPhase::folding, (1u << ranks()) - 1);
    slot(number).claimed = board_count(turn_at(number), 0);
    slot(number).folded = board_count(turn_at(number), 0);
  }
  void complain(uint64_t number) {
    slot(number).overdue = board_count(turn_at(number), 1);
    board().calls.fetch_add(1);
    trainer(0).ring();
  }
  bool is_cleared(uint64_t number) {
    return slot(number).word.load() == board_word(turn_at(number) + 1, BoardPhase::open, 0);
  }
  Completion& completion(uint32_t rank) { return trainer(rank).completion(9); }
  bool is_done(uint32_t rank) {
    return completion(rank).state.load() == slot_word(SlotState::done);
  }
  std::vector<uint32_t> slots_of(uint32_t rank) {
    std::vector<uint32_t> slots;
    for (const OpRequest& request : events(rank).requests) slots.push_back(request.slot);
    return slots;
  }
  // Every slot's turn, as if the job had run for so long.
  void wind_to(uint64_t number) {
    for (uint64_t n = number; n < number + kBoardSlots; ++n) {
      slot(n).word = board_word(turn_at(n), BoardPhase::open, 0);
      slot(n).claimed = slot(n).folded = board_count(UINT32_MAX, 0);
    }
  }

  Loop loop_;
  std::vector<std::unique_ptr<Served>> served_;
};

using Slots = std::vector<uint32_t>;

}  // namespace tutti

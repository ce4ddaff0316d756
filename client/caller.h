// What a rank's procedures on the board need besides memory; see SlotMemory.
#pragma once

#include "client/calls.h"

namespace tutti::client {

class Calls::Caller {
 public:
  explicit Caller(Calls& calls) : calls_(calls) {}
  Caller(Calls& calls, const Request& request, const Ticket& ticket)
      : calls_(calls), request_(&request), ticket_(&ticket) {}

  board::Decision decide(uint64_t number) {
    const board::Decision decision = calls_.decide(number);
    const bool folds = decision.next == board::Phase::folding && !decision.alone;
    is_background_ = folds && !calls_.deciding_.anyone_waits;
    return decision;
  }
  void ring() const { calls_.connection_.ring_worker(); }
  uint64_t settled_by_all() const { return calls_.settled_by_all_; }
  uint32_t seat() const { return calls_.seat_; }
  const Request& request() const { return *request_; }
  // 0: the rank has not looked at the clock yet, which it does when it waits for long.
  int64_t started_ns() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               ticket_->started.load().time_since_epoch())
        .count();
  }
  // The ranks go on to something else: the worker folds.
  bool is_background() const { return is_background_; }

 private:
  Calls& calls_;
  const Request* request_ = nullptr;
  const Ticket* ticket_ = nullptr;
  bool is_background_ = false;
};

}  // namespace tutti::client

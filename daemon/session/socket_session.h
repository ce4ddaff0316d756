// The one Session: a trainer behind a Unix socket. session.cc serves its ring, seat.cc its seat at
// the board.
#pragma once

#include <bitset>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/session/board.h"
#include "daemon/session/mapping.h"
#include "daemon/session/request.h"
#include "daemon/session/session.h"

namespace tutti {

class SocketSession : public Session, public Board::Seat {
 public:
  SocketSession(Loop& loop, Fd socket, Segment segment, Fd doorbell, Events& events)
      : loop_(loop),
        socket_(std::move(socket)),
        memory_(std::move(segment.memory)),
        mapping_(std::move(segment.mapping)),
        doorbell_(std::move(doorbell)),
        events_(events) {}
  ~SocketSession() override { stop(); }

  Status start();

  pid_t process() const override { return pid_; }
  void set_group(uint32_t group, uint32_t rank_in_group, uint32_t group_size) override {
    require(rank_in_group < group_size, "a rank must be within its group");
    groups_[group] = {rank_in_group, group_size};
  }

  Status welcome(uint32_t epoch, const std::vector<std::string>& hosts) override;
  void refuse(const Status& why) override { refuse_trainer(socket_.get(), why); }
  void complete(uint32_t slot, const Status& status, uint32_t value) override;
  void use_board(bool use) override {
    if (board_ != nullptr) board_->set_in_use(use);
  }
  Figures board_figures() const override {
    if (board_ == nullptr) return {};
    return {board_->operations(rank_on_board_), failures_on_board_, board_->bytes(rank_on_board_)};
  }
  Status sit_down(std::shared_ptr<Board> board, uint32_t rank);

  void take_from_board(const Request& request, uint32_t ring_head, uint32_t waited_ms) override;
  void fail_on_board(uint32_t slot, const Status& status) override;
  Status stuck(const std::string& what) const override;
  void end_epoch(const Status& why) override { events_.on_stuck(*this, why); }

 private:
  void read_socket();
  void take_requests();
  void take_until(uint32_t position);
  bool take(const Request& request, uint32_t waited_ms = 0);
  void take_operation(const Request& request, GroupPlace place, uint32_t waited_ms);
  void post(uint32_t slot, const Status& status, uint32_t value);
  void take_subgroup(const Request& request);
  Result<std::vector<uint32_t>> read_ranks(const Request& request) const;
  Status blame(const Request& request, const Status& fault) const;
  std::string host() const;
  std::string who() const;
  void hang_up();
  void break_off(const std::string& how);
  void end(bool leaving, Status why);
  void stop();

  Loop& loop_;
  Fd socket_;
  pid_t pid_ = 0;
  Fd process_;
  Fd memory_;  // Until the welcome.
  std::shared_ptr<const Mapping> mapping_;
  Fd doorbell_;
  Events& events_;
  bool welcomed_ = false;
  bool stopped_ = false;
  uint32_t tail_ = 0;  // The truth; the segment holds a copy for the trainer.
  std::bitset<kRingSlots> pending_;
  std::map<uint32_t, GroupPlace> groups_;
  std::shared_ptr<Board> board_;
  uint32_t rank_on_board_ = 0;
  uint64_t failures_on_board_ = 0;
  bool ending_ = false;
  std::vector<std::string> hosts_;
};

}  // namespace tutti

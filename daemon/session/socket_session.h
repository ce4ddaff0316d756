// The implementation of Session: a trainer behind a Unix socket, with a seat on the board of its
// host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/session/host_board.h"
#include "daemon/session/mapping.h"
#include "daemon/session/request.h"
#include "daemon/session/session.h"

namespace tutti {

class SocketSession : public Session, public RankSession {
 public:
  SocketSession(Loop& loop, Fd socket, uint64_t segment_bytes, Fd doorbell, Events& events,
                pid_t told_pid)
      : loop_(loop),
        socket_(std::move(socket)),
        segment_bytes_(segment_bytes),
        doorbell_(std::move(doorbell)),
        events_(events),
        told_pid_(told_pid) {}
  ~SocketSession() override { stop(); }

  // Watches the socket and the process at its other end.
  Status start();
  // Makes the segment. The session shares the board of its host, at `seat`. Once, before welcome().
  Status attach(std::shared_ptr<HostBoard> board, uint32_t seat, uint32_t rank,
                uint32_t world_size);

  // Session.
  void poll_end() override;
  pid_t pid() const override { return pid_; }
  void set_segment_bytes(uint64_t bytes) override { segment_bytes_ = bytes; }
  Status welcome(uint32_t epoch, const std::vector<std::string>& hosts) override;
  void refuse(const Status& why) override { refuse_trainer(socket_.get(), why); }
  void set_ranks_decide(bool let) override;
  Counters counters() const override;
  uint64_t memory_bytes() const override;
  void complete(uint32_t group, uint64_t number, const Status& status) override;
  void release_window(uint32_t group, uint64_t number, uint64_t bytes) override;
  void collect_requests(uint32_t group, uint64_t number) override;
  bool let_ranks_fold(uint32_t group, uint64_t number) override;
  void answer_subgroup(const Result<uint32_t>& group, const std::vector<uint32_t>& ranks) override;
  void answer_offer(const Status& status) override;

  // RankSession.
  void on_request(uint32_t group, uint64_t number, GroupPlace place, const Request& request,
                  uint32_t waited_ms) override;
  void on_window_filled(uint32_t group, uint64_t number) override {
    events_.on_window_filled(*this, group, number);
  }
  void on_subgroup_request(const BoardSubgroupRequest& request) override;
  void on_offer(uint64_t offset) override;
  void on_stuck(const Status& why) override { events_.on_stuck(*this, why); }
  std::string describe() const override;
  Status blame(Code code, const std::string& what) const override;

 private:
  void read_socket();
  void take_process(Fd shown);
  Result<std::vector<uint32_t>> read_ranks(uint32_t count, uint64_t offset) const;
  std::string host() const;
  void on_hang_up();
  void end(bool leaving, Status why);
  void stop();

  Loop& loop_;
  Fd socket_;
  pid_t pid_ = 0;  // 0: not visible from here.
  Fd process_;     // A pidfd; none where the process is not visible from here.
  uint64_t segment_bytes_;
  Fd segment_;  // These two once it is attached.
  std::shared_ptr<const Mapping> mapping_;
  Fd doorbell_;
  Events& events_;
  const pid_t told_pid_;      // What the trainer calls itself, in its own namespace.
  std::vector<Fd> received_;  // Descriptors of chunks that the next offers name.
  std::shared_ptr<HostBoard> board_;
  uint32_t seat_ = 0;
  uint32_t rank_ = 0;
  uint32_t world_size_ = 0;
  bool welcomed_ = false;
  bool ending_ = false;
  bool stopped_ = false;
  std::vector<std::string> hosts_;  // By rank of the job.
};

}  // namespace tutti

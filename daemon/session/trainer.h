// One trainer as its worker sees it: its Unix socket, its hello's answer, and its end.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/base/loop.h"
#include "daemon/session/host_board.h"

namespace tutti {

// Loop thread only. Watches the socket and the process at its other end from the start.
class Trainer {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    // The trainer is gone: `leaving` on purpose, else it died or broke the protocol (`why` says
    // how). Called once. The trainer must not be destroyed inside: post that.
    virtual void on_end(Trainer& trainer, bool leaving, Status why) = 0;
  };

  // Takes the socket. Where it fails, it has refused the trainer with the error that it returns.
  // UNAVAILABLE: the trainer has ended already.
  static Result<std::unique_ptr<Trainer>> open(Loop& loop, Fd socket, Events& events);
  // Use open().
  Trainer(Loop& loop, Fd socket, Fd doorbell, Events& events);
  ~Trainer() { stop(); }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // The trainer's process; 0: it is not visible from here.
  pid_t pid() const { return pid_; }
  // Calls on_end() at once where the trainer is gone and the loop has not handled that yet.
  void poll_end();
  // Sends the trainer its descriptors and starts serving it as this rank of the board. `hosts`: by
  // rank of the job. Once.
  Status welcome(std::shared_ptr<HostBoard> board, uint32_t rank, uint32_t epoch,
                 const std::vector<std::string>& hosts);
  // Instead of welcome(): tells the trainer why not. Destroy it then.
  void refuse(const Status& why);

 private:
  Status start();
  void read_socket();
  void take_process(Fd shown);
  void on_hang_up();
  void end(bool leaving, Status why);
  void stop();
  std::string describe() const;

  Loop& loop_;
  Fd socket_;
  pid_t pid_ = 0;
  Fd process_;  // A pidfd; none where the process is not visible from here.
  Fd doorbell_;
  Events& events_;
  std::vector<Fd> received_;  // Descriptors of chunks that the next offers name.
  std::shared_ptr<HostBoard> board_;
  uint32_t rank_ = 0;
  bool welcomed_ = false;
  bool ending_ = false;
  bool stopped_ = false;
};

}  // namespace tutti

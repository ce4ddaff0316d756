// The order in which operations launch work on a communicator: that in which they were added, which
// is the same on all hosts, whenever each becomes ready. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

namespace tutti::nccl {

class LaunchOrder {
 public:
  using Ticket = uint64_t;
  // `at_once`: operations that have begun to launch and whose work has not ended.
  explicit LaunchOrder(int at_once) : room_(at_once) {}

  // `go`: called from inside a call of this class, once, if the ticket is ready and its turn comes.
  Ticket add(std::function<void()> go);
  void set_ready(Ticket ticket);
  // It launches nothing more, so the next one may begin.
  void pass(Ticket ticket);
  // Its work has ended, or never begins. Once for each ticket.
  void leave(Ticket ticket);
  // Nothing begins any more.
  void close() { is_closed_ = true; }

 private:
  struct Waiting {
    std::function<void()> go;
    bool is_ready = false;
    bool has_begun = false;
  };
  void run();

  int room_;
  bool is_closed_ = false;
  Ticket next_ = 0;
  std::map<Ticket, Waiting> waiting_;  // Those that have not passed.
  std::map<Ticket, bool> begun_;       // Those that have not left: whether they have begun.
};

}  // namespace tutti::nccl

// Routes the links that other workers dial: each goes to the epoch it belongs to, or is refused.
//
// A link may arrive before this worker's own roster does. It then waits for its epoch until it
// closes, a timeout passes, or it makes room: of more than a number of links that wait, the oldest
// of the address that has most is refused with RESOURCE_EXHAUSTED, and its dialler tries again. A
// link is closed if its epoch is over or it does not prove the epoch's secret. Its epoch is over if
// it proves the secret of one that this worker has had; a number alone does not tell, because it
// may be used again.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "daemon/base/fair_queue.h"
#include "daemon/base/loop.h"
#include "daemon/group/group.h"
#include "daemon/transport/transport.h"

namespace tutti {

// Loop thread only, except for the acceptor.
class LinkRouter {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    // Returns null unless this worker is in the epoch.
    virtual const std::string* secret_of(uint32_t epoch) const = 0;
    // Gives such an epoch a link that `host` dialled and that has shown its secret.
    virtual void add_link(uint32_t epoch, const std::string& host, std::shared_ptr<Link> link,
                          std::shared_ptr<LoopHandler> handler) = 0;
  };

  LinkRouter(Loop& loop, std::string job, Millis wait_timeout, size_t waiting_max, Events& events);
  ~LinkRouter();

  // For Transport::listen. May be called on any thread, and after the router's end.
  Acceptor acceptor();
  // This worker is in the epoch now: routes the links that waited for it.
  void on_epoch_formed(uint32_t epoch);

 private:
  struct Incoming {
    IncomingLink hello;
    std::shared_ptr<Link> link;
    std::shared_ptr<LoopHandler> handler;
    TimePoint deadline;
  };

  class ClosingObserver;

  void route(Incoming incoming);
  static void refuse(const Incoming& incoming, const Status& cause);
  bool is_over(const IncomingLink& hello) const;
  void remove_waiting(const LoopHandler* handler);
  void expire_waiting();

  Loop& loop_;
  const std::string job_;
  const Millis wait_timeout_;
  const size_t waiting_max_;
  Events& events_;
  FairQueue<Incoming> waiting_;              // By deadline.
  std::map<uint32_t, std::string> secrets_;  // Of the epochs that this worker has had.
  Loop::TimerId timer_ = 0;
  Lifetime lifetime_;
};

}  // namespace tutti

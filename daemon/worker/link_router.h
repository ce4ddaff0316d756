// Where other workers' links come in: each is led to the epoch it belongs to, or turned away.
//
// A link may arrive before this worker's own roster does; it waits for it, within a limit, as long
// as it lives. Links of epochs that are over, and links that do not know the epoch's secret, are
// closed. An epoch is over where this worker had it, which its secret tells: a number alone may be
// that of an epoch to come.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>

#include "daemon/base/loop.h"
#include "daemon/group/group.h"
#include "daemon/transport/transport.h"

namespace tutti {

class LinkRouter {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    virtual Epoch* find_epoch(uint32_t epoch) = 0;
  };

  LinkRouter(Loop& loop, std::string job, Millis patience, Events& events);
  ~LinkRouter();

  // For Transport::listen; may be called on any thread.
  Acceptor acceptor();
  // A epoch was made, and can be found: links that waited for it go in.
  void on_epoch_formed(uint32_t epoch);

 private:
  struct Guest {
    IncomingLink hello;
    std::shared_ptr<Link> link;
    std::shared_ptr<LoopHandler> handler;
    TimePoint until;
  };

  class Caller;

  void receive(Guest guest);
  bool is_over(const IncomingLink& hello) const;
  void gone(const LoopHandler* handler);
  void lead_in(const Guest& guest, Epoch& epoch);
  void turn_away_late();

  Loop& loop_;
  const std::string job_;
  const Millis patience_;
  Events& events_;
  std::list<Guest> waiting_;
  std::map<uint32_t, std::string> secrets_;  // Of the epochs that this worker had.
  Loop::TimerId timer_ = 0;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // Loop thread only.
};

}  // namespace tutti

// The listening end of TCP links: strangers in, links out (proto/handshake.h).
#pragma once

#include <list>
#include <memory>
#include <string>

#include "daemon/transport/tcp_link.h"

namespace tutti {

class Greeting;

// On the loop, but for its making before the loop runs.
class TcpListener {
 public:
  TcpListener(std::shared_ptr<TcpHub> hub, Fd socket, Acceptor acceptor);
  ~TcpListener();
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;

  Status start();
  void stop();

 private:
  friend class Greeting;
  void accept_some();
  void rest();
  void let_wait(const std::shared_ptr<Greeting>& greeting);
  void forget(const std::shared_ptr<Greeting>& greeting);

  const std::shared_ptr<TcpHub> hub_;
  const Fd socket_;
  const Acceptor acceptor_;
  std::list<std::shared_ptr<Greeting>> strangers_;  // Oldest first.
  std::list<std::shared_ptr<Greeting>> guests_;     // The acceptor was asked; it bounds them.
  Loop::TimerId rest_ = 0;
};

}  // namespace tutti

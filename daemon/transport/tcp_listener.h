// The listening end of TCP links: strangers in, links out (proto/handshake.h).
#pragma once

#include <list>
#include <memory>

#include "daemon/transport/tcp_link.h"

namespace tutti {

class Stranger;

// On the loop, but for its making before the loop runs.
class TcpListener {
 public:
  TcpListener(std::shared_ptr<TcpHub> hub, Fd socket, Acceptor acceptor);
  ~TcpListener();
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;

  Status start();

 private:
  friend class Stranger;
  void accept_some();
  void rest();

  const std::shared_ptr<TcpHub> hub_;
  const Fd socket_;
  const Acceptor acceptor_;
  std::list<std::shared_ptr<Stranger>> strangers_;  // Oldest first.
  Loop::TimerId rest_ = 0;
};

}  // namespace tutti

// The listening side of TCP links: accepts connections, runs their handshakes (proto/handshake.h)
// and offers the links to the acceptor.
#pragma once

#include <memory>

#include "daemon/transport/tcp_link.h"

namespace tutti {

class IncomingConnection;

// Loop thread only; may be constructed before the loop runs.
class TcpListener {
 public:
  TcpListener(std::shared_ptr<TcpTransportCore> transport, Fd socket, Acceptor acceptor);
  ~TcpListener();
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;

  Status start();

 private:
  friend class IncomingConnection;
  void accept_some();
  void pause_accepting();

  const std::shared_ptr<TcpTransportCore> transport_;
  const Fd socket_;
  const Acceptor acceptor_;
  FairQueue<std::shared_ptr<IncomingConnection>> connections_;
  Loop::TimerId resume_timer_ = 0;
};

}  // namespace tutti

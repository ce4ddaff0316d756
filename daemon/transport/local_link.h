// A link between two transports of one process. Sent frames are queued at the receiving end; they
// belong to the sender until the receiver copies them, as from a network. So no release waits for
// a receiver's handler, and a link that closes releases what the peer has not read.
//
// Handlers are called on the loop of their own transport.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "daemon/transport/link_core.h"

namespace tutti {

struct LocalListener {
  std::shared_ptr<TransportCore> transport;  // Null: nobody listens.
  Acceptor acceptor;
};

class LocalLink final : public LinkCore {
 public:
  static std::shared_ptr<LocalLink> dial(const std::shared_ptr<TransportCore>& here,
                                         const LocalListener& there, const std::string& address,
                                         const LinkHello& hello,
                                         std::shared_ptr<LinkHandler> handler);
  // Sends an unchecked header, so that tests can play a faulty peer.
  void send_raw(const FrameHeader& header, const std::string& payload);

 private:
  LocalLink(std::shared_ptr<TransportCore> transport, std::string peer,
            std::shared_ptr<LinkHandler> handler, std::shared_ptr<std::mutex> pair_mutex);
  void wake_writer_locked() override;
  void wake_reader_locked() override { post_locked(&LocalLink::read_some); }
  void welcome(const std::string&, const LinkTerms&) override {}  // There is no handshake.
  void refuse(const Status& why) override { disconnect(why); }
  void close_wire() override { disconnect(unavailable("the peer's end of the link is gone")); }
  bool peer_is_alive() const override { return true; }

  void accept(const Acceptor& acceptor, const LinkHello& hello);
  void disconnect(const Status& why);
  void flush();
  void write(Queue frames);
  void read_some();
  std::unique_ptr<PendingFrame> read_one();

  bool flush_posted_ = false;  // Guarded by mutex_.
  FrameChecker checker_;       // Loop thread only.
  // Shared by both ends; locked before mutex_.
  const std::shared_ptr<std::mutex> pair_mutex_;
  std::shared_ptr<LocalLink> peer_link_;  // Guarded by pair_mutex_, as is arrived_.
  Queue arrived_;
};

}  // namespace tutti

// The wire of an in-process link: the queue of what has arrived at the peer's end. The frames in it
// are still the sender's: its end takes back what the peer has not read. They are copied as the
// peer reads them, as from a network, so no release waits for a receiver's handler.
//
// Each transport's links live on a loop of its own; everything a handler is told, it is told there.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "daemon/transport/link_core.h"

namespace tutti {

struct LocalListener {
  std::shared_ptr<LinkHub> hub;  // Null where nobody listens.
  Acceptor acceptor;
};

class LocalLink final : public LinkCore {
 public:
  static std::shared_ptr<LocalLink> dial(const std::shared_ptr<LinkHub>& here,
                                         const LocalListener& there, const std::string& address,
                                         const LinkHello& hello,
                                         std::shared_ptr<LinkHandler> handler);
  // Sends a header as it stands, so that tests can play a peer that lies.
  void send_raw(const FrameHeader& header, const std::string& payload);

 private:
  LocalLink(std::shared_ptr<LinkHub> hub, std::string peer, std::shared_ptr<LinkHandler> handler,
            std::shared_ptr<std::mutex> joint);
  void wake_writer_locked() override;
  void wake_reader_locked() override { post_locked(&LocalLink::read_some); }
  void welcome(const std::string&) override {}  // There is no handshake.
  void refuse(const Status& why) override { part(why); }
  void cut() override { part(unavailable("the peer's end of the link is gone")); }
  bool shows_life() const override { return true; }

  void accept(const Acceptor& acceptor, const LinkHello& hello);
  void part(const Status& why);
  void flush();
  void write(Queue frames);
  void read_some();
  std::unique_ptr<Borrow> read_one();

  bool flush_posted_ = false;  // Guarded by mutex_.
  FrameChecker checker_;       // The loop's.
  // Of both ends; taken before mutex_.
  const std::shared_ptr<std::mutex> joint_;
  std::shared_ptr<LocalLink> far_end_;  // Guarded by joint_, as is arrived_.
  Queue arrived_;
};

}  // namespace tutti
